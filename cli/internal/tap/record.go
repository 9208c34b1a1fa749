package tap

import (
	"context"
	"fmt"
	"io"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/recording"
)

// recorder writes a recording of what it is given. A nil recorder writes nothing.
type recorder struct{ to *recording.Writer }

func newRecorder(out io.Writer, h recording.Header) (*recorder, error) {
	to, err := recording.NewWriter(out, h)
	return &recorder{to}, err
}

// add hides what must not be in a file that is sent to others.
func (r *recorder) add(m bus.Message, retained bool) error {
	if r == nil {
		return nil
	}
	data, err := redact(m.Data)
	if err != nil {
		data = nil // it is garbled
	}
	return r.to.Add(recording.Of(m, data, retained))
}

// Collect writes a recording of what the bus keeps since the header's From, and of what it retains, and returns at its
// end.
func Collect(ctx context.Context, transport bus.Transport, h recording.Header, out io.Writer) error {
	recorder, err := newRecorder(out, h)
	if err != nil {
		return err
	}
	all := func(m bus.Message) error { return recorder.add(m, true) }
	if err := retained(ctx, transport, Filter{}, all); err != nil {
		return err
	}
	filters, err := Filter{}.subjects()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for d := range transport.WatchEvents(ctx, filters, bus.From{Since: h.From}) {
		if d.Synced {
			return nil
		}
		if err := recorder.add(d.Message, false); err != nil {
			return err
		}
	}
	return fmt.Errorf("read the history: %w", context.Cause(ctx))
}

// retained gives the last message of each key of the filter's topics to take, and those of pod.update in any case, as
// they have the names of pods.
func retained(ctx context.Context, transport bus.Transport, f Filter, take func(bus.Message) error) error {
	var filters []string
	for _, t := range topic.All() {
		if t.Kind() == bus.KindState && (f.matchesTopic(t.Name()) || t.Name() == topic.PodUpdate.Name()) {
			filters = append(filters, bus.Filter(t))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for d := range transport.WatchState(ctx, filters) {
		if d.Synced {
			return nil
		}
		if err := take(d.Message); err != nil {
			return err
		}
	}
	return fmt.Errorf("read what the bus retains: %w", context.Cause(ctx))
}
