package bus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// firstSchema is the schema of a message without HeaderSchema, such as one of the stock nats CLI.
const firstSchema = 1

// SchemaError says that a message is written in a schema that its reader doesn't know. Its fields may mean something
// else there, so it isn't decoded (docs/adr/0028).
type SchemaError struct {
	Topic  string
	Writer string // the daemon
	Reader string // the daemon
	// Schema is the message's, and Oldest and Newest are the reader's.
	Schema, Oldest, Newest int
}

func (e *SchemaError) Error() string {
	reads := "schema " + strconv.Itoa(e.Newest)
	if e.Oldest < e.Newest {
		reads = fmt.Sprintf("schemas %d to %d", e.Oldest, e.Newest)
	}
	older := e.Reader
	if e.Schema < e.Oldest {
		older = e.Writer
	}
	return fmt.Sprintf("kubelot-%s says %s in schema %d, and this kubelot-%s reads %s: upgrade kubelot-%s",
		e.Writer, e.Topic, e.Schema, e.Reader, reads, older)
}

// readable is an error unless the reader knows the schema of a message of this topic.
func (i info) readable(m Message, reader string) error {
	schema := firstSchema
	if text, found := m.Header[HeaderSchema]; found {
		var err error
		if schema, err = strconv.Atoi(text); err != nil || schema < firstSchema {
			return fmt.Errorf("the header %s is %q, and must be a number from 1 on", HeaderSchema, text)
		}
	}
	if schema >= i.oldest() && schema <= i.Schema() {
		return nil
	}
	return &SchemaError{
		Topic: i.Spec.Name, Writer: m.Header[HeaderDaemon], Reader: reader,
		Schema: schema, Oldest: i.oldest(), Newest: i.Schema(),
	}
}

// oldest is the oldest schema that this release reads.
func (i info) oldest() int {
	if i.Oldest == 0 {
		return i.Schema()
	}
	return i.Oldest
}

// unread is what a connection's readers couldn't read because of its schema, by topic and writer. An entry goes when
// the same writer says something of the topic that can be read.
type unread struct {
	any  atomic.Bool // whether texts has any, so that a message that can be read costs no lock
	mu   sync.Mutex
	all  map[[2]string]string
	told func(texts []string)
}

// note takes what became of a message, and reports whether it is a schema error that was noted before.
func (u *unread) note(topic, writer string, err error) (again bool) {
	schema, is := errors.AsType[*SchemaError](err)
	if !is && !u.any.Load() {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	key := [2]string{topic, writer}
	before, had := u.all[key]
	switch {
	case is && before == schema.Error():
		return true
	case is:
		if u.all == nil {
			u.all = map[[2]string]string{}
		}
		u.all[key] = schema.Error()
	case had:
		delete(u.all, key)
	default:
		return false
	}
	u.any.Store(len(u.all) > 0)
	if u.told != nil {
		u.told(slices.Sorted(maps.Values(u.all)))
	}
	return false
}

// OnUnreadable has f called with what can't be read because it has another schema, each time that this changes; with
// nothing when all can be read again. It must be set before anything is read.
func (c *Conn) OnUnreadable(f func(texts []string)) { c.unread.told = f }
