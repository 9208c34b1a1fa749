package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// entry is a message that was understood. value is of the topic's payload type; nil in a tombstone.
type entry struct {
	bus.Message
	topic  bus.Topic
	key    string
	writer string
	value  any
}

// kept are the topics whose messages the bus keeps.
func kept() []bus.Topic {
	var all []bus.Topic
	for _, t := range topic.All() {
		if t.Kind() != bus.KindCall {
			all = append(all, t)
		}
	}
	return all
}

// understand finds the topic of a message and decodes it.
func understand(m bus.Message) (entry, error) {
	e := entry{Message: m, writer: m.Header[bus.HeaderDaemon]}
	for _, t := range kept() {
		rest, ok := strings.CutPrefix(m.Subject, t.Name())
		key, dotted := strings.CutPrefix(rest, ".")
		// A topic with keys has a dot behind its name, and one without has nothing.
		if ok && (dotted && t.Keys() != "" || rest == "" && t.Keys() == "") {
			e.topic, e.key = t, key
		}
	}
	if e.topic == nil {
		return e, fmt.Errorf("no topic has the subject %q", m.Subject)
	}
	if m.Tombstone() {
		return e, nil
	}
	if schema := m.Header[bus.HeaderSchema]; schema != "" && schema != strconv.Itoa(e.topic.Schema()) {
		return e, fmt.Errorf("%s has the schema %q", m.Subject, schema)
	}
	if bytes.Equal(bytes.TrimSpace(m.Data), []byte("null")) || len(m.Data) == 0 {
		return e, errors.New("the payload is empty")
	}
	value := reflect.New(e.topic.Payload())
	if err := json.Unmarshal(m.Data, value.Interface()); err != nil {
		return e, err
	}
	e.value = value.Elem().Interface()
	return e, nil
}

// put keeps the value of the entry's key, or removes it.
func put[T any](into map[string]T, e entry) map[string]T {
	value, ok := e.value.(T)
	if !ok {
		delete(into, e.key)
		return into
	}
	if into == nil {
		into = map[string]T{}
	}
	into[e.key] = value
	return into
}

// only is the value of a topic that has one; empty for a tombstone.
func only[T any](e entry) T {
	value, _ := e.value.(T)
	return value
}
