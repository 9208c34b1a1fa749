package bus

import (
	"context"
	"time"
)

// compareTimeout bounds the reading of what the bus has of a writer's topic. If it ends, the next connection compares.
const compareTimeout = 5 * time.Second

// compare reads what the bus has of the topic, after each connection and before anything is sent on it. The first time
// the writer takes over what earlier processes of the daemon have said and this one has not replaced. From then on it
// knows all keys, and removes those that only the bus has: a bus that was killed finds the values of keys again whose
// tombstones have expired.
func (w *Writer[T]) compare(ctx context.Context) {
	if w.topic.PerDaemon() {
		return // its one key is never removed, and the others are not this daemon's
	}
	kept, complete := w.retained(ctx)
	if !complete {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for subject, m := range kept {
		switch {
		case w.values[subject] != nil:
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
}

// retained are the messages that the bus has of the topic, without tombstones. complete is false if that can't be read.
func (w *Writer[T]) retained(ctx context.Context) (kept map[string]*Message, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	kept = map[string]*Message{}
	for d := range w.conn.transport.WatchState(ctx, []string{Filter(w.topic)}) {
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
