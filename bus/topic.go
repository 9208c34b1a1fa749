package bus

import (
	"fmt"
	"reflect"
	"strings"
)

// Kind is how the bus treats the messages of a topic.
type Kind string

const (
	// KindState keeps the last value of every key; a new reader gets the kept values first.
	KindState Kind = "state"
	// KindEvent keeps a bounded history and nothing else.
	KindEvent Kind = "event"
	// KindCall is a request with one reply and a deadline; nothing is kept.
	KindCall Kind = "call"
)

// Topic is the untyped side of State, Event and Call. Contracts list topics, and permissions, documentation and the tap
// are generated from them.
type Topic interface {
	// Name is the subject without its key, such as "pod.update".
	Name() string
	Kind() Kind
	// Keys names the key's tokens, such as "<uid>" or "<uid>.<container>.<kind>"; empty for a topic with one value.
	Keys() string
	// Schema is the version of the payload's shape, sent in a header with each message.
	Schema() int
	// Doc says in one sentence what a message states.
	Doc() string
	// PerDaemon is true where every daemon writes the one key that is its own name.
	PerDaemon() bool
	// Payload is the Go type of a message; for a call the request's.
	Payload() reflect.Type
}

// Spec describes a topic; NewState, NewEvent and NewCall bind it to a Go type.
type Spec struct {
	Name string
	Keys string
	// Schema is the version of the payload's shape that this release writes. It changes only when fields change their
	// meaning or go, never when fields are added. docs/adr/0028 says how.
	Schema int
	// Oldest is the oldest schema that this release reads; 0 means Schema.
	Oldest    int
	Doc       string
	PerDaemon bool
}

type info struct {
	Spec
	kind    Kind
	payload reflect.Type
}

func (i info) Name() string          { return i.Spec.Name }
func (i info) Kind() Kind            { return i.kind }
func (i info) Keys() string          { return i.Spec.Keys }
func (i info) Schema() int           { return max(i.Spec.Schema, firstSchema) }
func (i info) Doc() string           { return i.Spec.Doc }
func (i info) PerDaemon() bool       { return i.Spec.PerDaemon }
func (i info) Payload() reflect.Type { return i.payload }

// Filter is the subject pattern that covers every key of the topic t.
func Filter(t Topic) string {
	if t.Keys() == "" {
		return t.Name()
	}
	return t.Name() + strings.Repeat(".*", strings.Count(t.Keys(), ".")+1)
}

// Key joins the tokens of a key.
func Key(tokens ...string) string { return strings.Join(tokens, ".") }

// subject is the subject of one key, or an error where the key doesn't fit the topic.
func (i info) subject(key string) (string, error) {
	if i.Spec.Keys == "" {
		if key != "" {
			return "", fmt.Errorf("topic %s has no keys, got key %q", i.Spec.Name, key)
		}
		return i.Spec.Name, nil
	}
	tokens := strings.Split(key, ".")
	if want := strings.Count(i.Spec.Keys, ".") + 1; len(tokens) != want {
		return "", fmt.Errorf("topic %s wants the key %s, got %q", i.Spec.Name, i.Spec.Keys, key)
	}
	for _, token := range tokens {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n") {
			return "", fmt.Errorf("topic %s: key %q has an empty token or one of the characters * > and space", i.Spec.Name, key)
		}
	}
	return i.Spec.Name + "." + key, nil
}

// keyOf is the inverse of subject.
func (i info) keyOf(subject string) string {
	return strings.TrimPrefix(strings.TrimPrefix(subject, i.Spec.Name), ".")
}
