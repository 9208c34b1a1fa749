package bus

import (
	"context"
	"errors"
	"time"
)

// ErrDisconnected is returned by calls that need the bus while it is away.
var ErrDisconnected = WithKind(ErrUnavailable, errors.New("the bus is not reachable"))

// ErrDenied is returned when the daemon's contract doesn't allow the operation.
var ErrDenied = errors.New("not allowed by the daemon's bus contract")

// MaxPayload is the largest message, in bytes. No pod that the API server takes is as large in JSON.
const MaxPayload = 16 << 20

// ErrTooLarge is returned for a message that is larger than MaxPayload; it can never be sent.
var ErrTooLarge = errors.New("the message is larger than the bus allows")

// ErrNoResponder is returned by a call that no daemon serves at the moment.
var ErrNoResponder = WithKind(ErrUnavailable, errors.New("no daemon serves this call at the moment"))

// Header names of every message.
const (
	HeaderSchema    = "Kubelot-Schema"    // the topic's schema version, decimal
	HeaderDaemon    = "Kubelot-Daemon"    // the writer
	HeaderTombstone = "Kubelot-Tombstone" // "1": the key's value is gone
	HeaderError     = "Kubelot-Error"     // a call's failure, in words
	// HeaderErrorKind is the kind of a call's failure. It is absent where the server is of an earlier release.
	HeaderErrorKind = "Kubelot-Error-Kind"
)

// Message is one message below the typed topics.
type Message struct {
	Subject string
	// Header must not be changed once the message is made, because messages share it.
	Header map[string]string
	Data   []byte
	// Time is when the bus stored it; zero in a message that is still to be published.
	Time time.Time
}

// Tombstone reports whether the message removes its key.
func (m Message) Tombstone() bool { return m.Header[HeaderTombstone] == "1" }

// Delivery is one message handed to a reader, or the mark that all messages that
// were kept when it came have been handed over.
type Delivery struct {
	Message
	// Synced marks the end of the kept messages; the rest of the Delivery is empty.
	Synced bool
	// Ack tells the bus that a durable reader is done with the message; never nil.
	Ack func()
}

// From is where an event reader begins.
type From struct {
	// Durable names a position that the bus keeps for this daemon. After a restart the reader continues with the first
	// event that it hasn't acknowledged. If the bus has no position yet, the reader begins at Since, or at the oldest
	// event that is kept.
	Durable string
	// Since asks for the kept history from that time on; zero means new events only (but see Durable).
	Since time.Time
}

// Transport carries bytes: the NATS client or bustest's in-memory twin. Both pass bussuite.
//
// Readers' channels stay open until their context ends, over any number of
// reconnections, and never skip a message that a reader still needs: a state
// reader may miss overwritten values but not the last one of a key.
type Transport interface {
	// Publish stores one state or event message and returns when the bus has acknowledged it.
	Publish(ctx context.Context, m Message) error
	// WatchState delivers the last message of every matching subject (tombstones included), a Synced mark, then live
	// messages. When the bus was away or lost its state, retained messages may come again, followed by another Synced
	// mark.
	WatchState(ctx context.Context, filters []string) <-chan Delivery
	// WatchEvents delivers events in the order in which the bus stored them: those that are kept and asked for, one
	// Synced mark, and new ones. With the filters of state topics it delivers every kept and new value of theirs, as
	// the tap needs it.
	WatchEvents(ctx context.Context, filters []string, from From) <-chan Delivery
	// Request sends one request and waits for its reply or the context's end. While the bus is away it
	// fails at once.
	Request(ctx context.Context, m Message) (Message, error)
	// Serve answers requests, each in a goroutine of its own. It blocks until the context ends and every answer
	// was given, and then returns nil; an error says why it can't serve at all.
	Serve(ctx context.Context, subject string, handle func(context.Context, Message) Message) error
	// Connects signals at once if the bus is connected, and after each connection that is made later.
	// The channel has room for one signal and is closed when the context ends.
	Connects(ctx context.Context) <-chan struct{}
	// Close ends the connection, all readers and servers, and waits for what it started.
	Close()
}
