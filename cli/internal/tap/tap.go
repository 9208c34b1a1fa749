package tap

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// namesTimeout bounds the reading of the pods' names before the first line.
const namesTimeout = 2 * time.Second

// Options say what is shown.
type Options struct {
	Filter Filter
	Format Format
	// Since asks for history from that long ago.
	Since time.Duration
}

// Run shows messages until ctx ends.
func Run(ctx context.Context, transport bus.Transport, o Options, out io.Writer) error {
	if o.Format.ShowEnv && os.Geteuid() != 0 {
		return fmt.Errorf("--show-env shows secrets and is for root only: run it with sudo")
	}
	selected, err := o.Filter.selected()
	if err != nil {
		return err
	}
	filters := make([]string, 0, len(selected))
	for _, t := range selected {
		filters = append(filters, bus.Filter(t))
	}
	from := bus.From{}
	if o.Since > 0 {
		from.Since = time.Now().Add(-o.Since)
	}
	messages := transport.WatchEvents(ctx, filters, from)
	view := newView(o.Format, o.Filter)
	if err := view.readNames(ctx, transport, o.Since == 0); err != nil {
		return err
	}
	for d := range messages {
		line, err := view.Line(d.Message, time.Now())
		if err != nil {
			line = err.Error()
		}
		if line == "" {
			continue
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// readNames learns which pod has which UID from the retained pods. Without the bus it goes on: names
// are learned from the messages too. Where no history follows, the retained pods are also what the first
// changes are told against.
func (v *View) readNames(ctx context.Context, transport bus.Transport, remember bool) error {
	limited, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	for d := range transport.WatchState(limited, []string{bus.Filter(topic.PodUpdate)}) {
		if d.Synced {
			return nil
		}
		_, key := split(d.Subject)
		v.learn(topic.PodUpdate.Name(), key, d.Message)
		if remember {
			v.last[d.Subject] = d.Data
		}
	}
	return ctx.Err()
}
