package bus

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// State is a topic that keeps the last value of every key.
type State[T any] struct {
	info
	check *check[T] // nil means that every value of the type makes sense
}

// NewState binds a state topic to its Go type.
func NewState[T any](spec Spec) State[T] {
	return State[T]{info: info{Spec: spec, kind: KindState, payload: reflect.TypeFor[T]()}}
}

// Checked returns the topic with a check of its values. Readers skip a value that the check refuses, as they skip one
// that can't be decoded, and keep the value that they had.
func (s State[T]) Checked(sense func(key string, v T) error) State[T] {
	s.check = &check[T]{sense}
	return s
}

// Change is what a state reader sees: a key's new value, its removal, or the end of the retained values.
type Change[T any] struct {
	Key   string
	Value T
	// Deleted is true for a tombstone; Value is then empty.
	Deleted bool
	// Synced marks that every retained value has been delivered; the other fields are empty.
	// It comes again after the bus was away.
	Synced bool
	// At is when the bus stored the value.
	At time.Time
}

// Watch delivers the retained value of every key, a Synced change, and then live changes,
// until ctx ends. A value that can't be decoded, or that the topic's check refuses, is logged and skipped. keys limits
// the watch to these keys; none means all.
func (s State[T]) Watch(ctx context.Context, c *Conn, keys ...string) (<-chan Change[T], error) {
	filters := []string{Filter(s)}
	if len(keys) > 0 {
		filters = filters[:0]
		for _, key := range keys {
			subject, err := s.subject(key)
			if err != nil {
				return nil, err
			}
			filters = append(filters, subject)
		}
	}
	raw := c.transport.WatchState(ctx, filters)
	out := make(chan Change[T])
	go func() {
		defer close(out)
		for d := range raw {
			change, err := s.decode(d, c.daemon)
			if !d.Synced && c.ignore(s, d.Message, err) {
				continue
			}
			select {
			case out <- change:
			case <-ctx.Done():
				return
			case <-c.ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Read returns the retained values of all keys. It needs the bus.
func (s State[T]) Read(ctx context.Context, c *Conn) (map[string]T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := s.Watch(ctx, c)
	if err != nil {
		return nil, err
	}
	values := map[string]T{}
	for change := range changes {
		switch {
		case change.Synced:
			return values, nil
		case change.Deleted:
			delete(values, change.Key)
		default:
			values[change.Key] = change.Value
		}
	}
	return nil, fmt.Errorf("read the retained values of %s: %w", s.Name(), readFailure(ctx))
}

// readFailure says why a read ended early: its context, or the connection was closed.
func readFailure(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return ErrDisconnected
}

func (s State[T]) decode(d Delivery, reader string) (Change[T], error) {
	if d.Synced {
		return Change[T]{Synced: true}, nil
	}
	change := Change[T]{Key: s.keyOf(d.Subject), At: d.Time, Deleted: d.Tombstone()}
	if change.Deleted {
		return change, nil
	}
	if err := s.readable(d.Message, reader); err != nil {
		return Change[T]{}, err
	}
	if err := decode(d.Data, &change.Value); err != nil {
		return Change[T]{}, fmt.Errorf("decode as %s: %w", s.payload, err)
	}
	return change, s.check.of(change.Key, change.Value)
}
