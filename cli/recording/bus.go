package recording

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus"
)

// errRecorded is the answer to whoever wants to change something.
var errRecorded = errors.New("this is the recording of a bus: nobody answers, and nothing can be written")

// Bus is the bus as it was at one moment of a recording: what was retained then, and the history until then. It is a
// bus.Transport to which nothing is added, so whatever reads the bus can read a recording.
type Bus struct {
	at, begins time.Time
	all        []Record
}

// ReadBus reads a recording. The moment is that of its last message.
func ReadBus(r *Reader) (*Bus, error) {
	b := &Bus{at: r.Header().Created, begins: r.Header().From}
	for record, err := range r.All() {
		if err != nil {
			return nil, err
		}
		if record.Garbled {
			continue // it has no data
		}
		b.all = append(b.all, record)
		if record.Time.After(b.at) {
			b.at = record.Time
		}
	}
	slices.SortStableFunc(b.all, func(x, y Record) int { return x.Time.Compare(y.Time) })
	return b, nil
}

// At is the moment.
func (b *Bus) At() time.Time { return b.at }

// Begins is the time of the first message of the history; the moment if there is none.
func (b *Bus) Begins() time.Time {
	for _, record := range b.all {
		if !record.Retained {
			return record.Time
		}
	}
	return b.at
}

// Until is the bus at an earlier moment. The error says that the recording begins later.
func (b *Bus) Until(at time.Time) (*Bus, error) {
	if at.Before(b.begins) {
		return nil, fmt.Errorf("the recording begins at %s: ask for a later time", b.begins.UTC().Format(time.RFC3339))
	}
	earlier := *b
	earlier.at = at
	return &earlier, nil
}

// WatchState delivers what was retained, and Synced.
func (b *Bus) WatchState(ctx context.Context, filters []string) <-chan bus.Delivery {
	last := map[string]bus.Message{}
	for _, m := range b.until(filters, time.Time{}, true) {
		last[m.Subject] = m.Message
	}
	var found []bus.Delivery
	for _, subject := range slices.Sorted(maps.Keys(last)) {
		found = append(found, bus.Delivery{Message: last[subject]})
	}
	return deliver(ctx, found)
}

// WatchEvents delivers the history, and Synced.
func (b *Bus) WatchEvents(ctx context.Context, filters []string, from bus.From) <-chan bus.Delivery {
	return deliver(ctx, b.until(filters, from.Since, false))
}

// until are the messages up to the moment. What is retained may be from after it: the bus may have been asked for it
// when the recording ended.
func (b *Bus) until(filters []string, since time.Time, retained bool) []bus.Delivery {
	var found []bus.Delivery
	for _, record := range b.all {
		if (retained || !record.Retained) && !record.Time.After(b.at) && !record.Time.Before(since) &&
			matches(filters, record.Subject) {
			found = append(found, bus.Delivery{Message: record.Message()})
		}
	}
	return found
}

// deliver gives a reader all that there is, and Synced. As with any bus, the reader ends with its context and not
// before.
func deliver(ctx context.Context, all []bus.Delivery) <-chan bus.Delivery {
	out := make(chan bus.Delivery)
	go func() {
		defer close(out)
		for _, d := range append(all, bus.Delivery{Synced: true}) {
			d.Ack = func() {}
			select {
			case out <- d:
			case <-ctx.Done():
				return
			}
		}
		<-ctx.Done()
	}()
	return out
}

// matches reports whether the subject is one that the filters cover.
func matches(filters []string, subject string) bool {
	// The tokens of a subject and path elements are matched alike.
	name := strings.ReplaceAll(subject, ".", "/")
	return slices.ContainsFunc(filters, func(filter string) bool {
		ok, err := path.Match(strings.ReplaceAll(filter, ".", "/"), name)
		return ok && err == nil
	})
}

// Publish refuses.
func (b *Bus) Publish(context.Context, bus.Message) error { return errRecorded }

// Request refuses.
func (b *Bus) Request(context.Context, bus.Message) (bus.Message, error) {
	return bus.Message{}, bus.WithKind(bus.ErrUnavailable, errRecorded)
}

// Serve refuses.
func (b *Bus) Serve(context.Context, string, func(context.Context, bus.Message) bus.Message) error {
	return errRecorded
}

// Connects says at once that the bus is there.
func (b *Bus) Connects(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	out <- struct{}{}
	context.AfterFunc(ctx, func() { close(out) })
	return out
}

// Close has nothing to end: readers end by themselves, or with their contexts.
func (b *Bus) Close() {}

// BusAt reads a recording up to a moment, or all of it if that is zero.
func BusAt(r *Reader, at time.Time) (*Bus, error) {
	b, err := ReadBus(r)
	if err != nil || at.IsZero() {
		return b, err
	}
	return b.Until(at)
}
