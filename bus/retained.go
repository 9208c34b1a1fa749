package bus

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kubelot.dev/bus/internal/backoff"
)

const (
	// compareTimeout bounds the wait for the next message while a writer reads what the bus has of its topic. Nothing is
	// sent meanwhile.
	compareTimeout = 5 * time.Second
	// firstCompare and lastCompare bound the pause before a reading that came to a stop is repeated.
	firstCompare, lastCompare = 10 * time.Second, time.Minute
)

// comparison is when a writer compares what it knows with what the bus has.
type comparison struct {
	backoff wait.Backoff
	again   <-chan time.Time // nil once all has been compared
}

// comparing compares after a new connection, and until that has succeeded again and again. A bus that is too busy for
// it may take messages all the same, so they are sent in between.
func (w *Writer[T]) comparing(ctx context.Context, c *comparison, connected bool) {
	if connected {
		c.backoff = backoff.Doubling(firstCompare, lastCompare)
	}
	if c.again = nil; !w.compare(ctx) {
		c.again = time.After(c.backoff.Step())
	}
}

// compare reads what the bus has of the topic, and reports whether it could; nothing is sent meanwhile. The first time
// the writer takes over what earlier processes of the daemon have said and this one has not replaced. From then on it
// knows all keys, and removes those that only the bus has: a bus that was killed finds the values of keys again whose
// tombstones have expired. Until then it keeps its own tombstones, to know those keys.
func (w *Writer[T]) compare(ctx context.Context) bool {
	if w.topic.PerDaemon() {
		return true // its one key is never removed, and the others are not this daemon's
	}
	kept, complete := w.retained(ctx)
	if !complete {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for subject, m := range kept {
		last := w.values[subject]
		switch {
		case last != nil && last.Tombstone():
			w.queueLocked(subject)
		case last != nil:
		case w.found:
			gone := w.tombstone()
			gone.Subject = subject
			w.values[subject] = gone
			w.queueLocked(subject)
		default:
			w.values[subject] = m
		}
	}
	w.found = true
	maps.DeleteFunc(w.values, func(subject string, m *Message) bool { return m.Tombstone() && !w.unsent[subject] })
	return true
}

// retained are the messages that the bus has of the topic, without tombstones. complete is false if that can't be read.
func (w *Writer[T]) retained(ctx context.Context) (kept map[string]*Message, complete bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(compareTimeout, cancel)
	defer late.Stop()
	kept = map[string]*Message{}
	for d := range w.conn.transport.WatchState(ctx, []string{Filter(w.topic)}) {
		late.Reset(compareTimeout)
		switch {
		case d.Synced:
			return kept, true
		case d.Tombstone():
			delete(kept, d.Subject)
		default:
			m := d.Message
			kept[d.Subject] = &m
		}
	}
	return nil, false
}
