// Package bussuite is the contract of a bus.Transport as tests. It runs against the in-memory twin
// (bustest) and against the real server (bus/embed): what passes here may be relied on with both.
package bussuite

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"kubelot.dev/bus"
)

// patience is how long the suite waits for something that must happen.
const patience = time.Minute

// Bus is a bus under test, with the crew of Contracts.
type Bus interface {
	// Dial connects as the daemon. The connection ends with the test.
	Dial(t *testing.T, daemon string, log *slog.Logger) bus.Transport
	// DialWrongKey connects with a key that the bus doesn't know.
	DialWrongKey(t *testing.T, log *slog.Logger) bus.Transport
	// Stop takes the bus away; Start brings it back, with or without what it had stored.
	Stop(t *testing.T)
	Start(t *testing.T, keepStore bool)
}

// Run runs the suite; start makes a bus of its own for each test.
func Run(t *testing.T, start func(t *testing.T) Bus) {
	tests := []struct {
		name string
		run  func(t *testing.T, f *fixture)
	}{
		{"retained first, then synced, then live", testRetained},
		{"nothing retained is synced at once", testEmpty},
		{"a watch of some keys gets these keys", testKeys},
		{"a value without keys", testSingle},
		{"a tombstone removes the key", testTombstone},
		{"equal values are sent once", testEqual},
		{"garbage is logged and skipped", testGarbage},
		{"a slow reader is caught up", testSlowReader},
		{"several readers get the same", testManyReaders},
		{"a reader that starts before the bus", testReaderFirst},
		{"a writer that starts before the bus", testWriterFirst},
		{"a restart with the store", testRestartKept},
		{"a restart without the store", testRestartLost},
		{"a key removed while a reader was away", testRemovedWhileAway},
		{"a denied write says so", testDenied},
		{"a denied read is logged and gets nothing", testDeniedRead},
		{"a wrong key gets nothing", testWrongKey},
		{"an oversized message says so", testTooLarge},
		{"events since a time and live", testEvents},
		{"new events only", testEventsNew},
		{"durable events resume", testDurable},
		{"events over a restart", testEventsRestart},
		{"events while the bus is away", testEventsAway},
		{"the history of states in order", testHistory},
		{"a call and its error", testCall},
		{"the kinds of a call's error", testKinds},
		{"a call to a server of another release", testOldServer},
		{"a call that nobody serves", testNoResponder},
		{"calls side by side, over a restart", testCallsRestart},
		{"a call while the bus is away", testCallAway},
		{"a server that isn't allowed", testServeDenied},
		{"closing ends everything", testClose},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{Bus: start(t), log: newLog()}
			test.run(t, f)
		})
	}
}

// fixture is what each test works with.
type fixture struct {
	Bus
	log *logBook
}

// conn connects as the daemon.
func (f *fixture) conn(t *testing.T, daemon string) *bus.Conn {
	t.Helper()
	log := slog.New(f.log)
	c := bus.NewConn(f.Dial(t, daemon, log), daemon, log)
	t.Cleanup(c.Close)
	return c
}

// ctx ends with the test, or when it hangs.
func (f *fixture) ctx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// logged waits until the log has a line with all the words.
func (f *fixture) logged(t *testing.T, words ...string) {
	t.Helper()
	for deadline := time.Now().Add(patience); f.log.count(words...) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was logged with the words %q", words)
		}
	}
}

// next is the reader's next message.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v, open := <-from:
		if !open {
			t.Fatal("the reader's channel was closed")
		}
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// silent fails if the reader gets something.
func silent[T any](t *testing.T, from <-chan T) {
	t.Helper()
	select {
	case v, open := <-from:
		if open {
			t.Fatalf("got %+v, want nothing", v)
		}
	case <-time.After(300 * time.Millisecond):
	}
}

// collect reads until the Synced mark.
func collect[T any](t *testing.T, from <-chan bus.Change[T]) map[string]T {
	t.Helper()
	values := map[string]T{}
	for {
		c := next(t, from)
		switch {
		case c.Synced:
			return values
		case c.Deleted:
			delete(values, c.Key)
		default:
			values[c.Key] = c.Value
		}
	}
}

// until reads until the key has the value, over doubled values and Synced marks.
func until[T comparable](t *testing.T, from <-chan bus.Change[T], key string, want T) {
	t.Helper()
	for {
		if c := next(t, from); c.Key == key && c.Value == want && !c.Deleted {
			return
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func set[T any](t *testing.T, w *bus.Writer[T], key string, v T) {
	t.Helper()
	must(t, w.Set(key, v))
}

func flush(t *testing.T, w interface{ Flush(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, w.Flush(ctx))
}

func watch[T any](t *testing.T, ctx context.Context, s bus.State[T], c *bus.Conn, keys ...string) <-chan bus.Change[T] {
	t.Helper()
	changes, err := s.Watch(ctx, c, keys...)
	must(t, err)
	return changes
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one that is %q", err, want)
	}
}
