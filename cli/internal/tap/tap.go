// Package tap shows the messages on the bus, one readable line each, records them and shows recordings again.
//
// # Reads
//
// Every topic, as raw messages; pod.update for the names and labels of pods.
//
// # Writes
//
// A recording: JSON lines, the first of which says so (see header and record).
//
// # Guarantees
//
//   - Values of env entries, HTTP probe headers and kubectl's copy of the manifest are hidden unless asked for. In
//     recordings they are always hidden.
//   - A message that can't be decoded is shown as such; the tap goes on. Its content isn't recorded, because nobody can
//     say what in it is secret.
//   - A file that isn't a recording, or one of a later format, is an error that names the line.
package tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// namesTimeout bounds the reading of the pods' names before the first line.
const namesTimeout = 2 * time.Second

// Options say what is shown.
type Options struct {
	Filter Filter
	Format Format
	// Since asks for history from that long ago.
	Since time.Duration
	// Record also gets what is shown, as a recording; nil for none.
	Record io.Writer
	// Version is kubelot's, for the recording.
	Version string
}

// Run shows messages until ctx ends, and then which steps are still open.
func Run(ctx context.Context, transport bus.Transport, o Options, out io.Writer) error {
	if o.Format.ShowEnv && os.Geteuid() != 0 {
		return errors.New("--show-env shows secrets and is for root only: run it with sudo")
	}
	filters, err := o.Filter.subjects()
	if err != nil {
		return err
	}
	now := time.Now()
	from := bus.From{}
	if o.Since > 0 {
		from.Since = now.Add(-o.Since)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := transport.WatchEvents(ctx, filters, from)
	view := newView(o.Format, o.Filter)
	var recorder *recorder
	if o.Record != nil {
		begin := now.Add(-max(0, o.Since))
		if recorder, err = newRecorder(o.Record, header{Created: now, From: begin, Kubelot: o.Version}); err != nil {
			return err
		}
	}
	if err := view.readNames(ctx, transport, o.Since == 0, recorder); err != nil {
		return err
	}
	for d := range messages {
		if err := view.show(d.Message, recorder, out); err != nil {
			return err
		}
	}
	return printLines(out, view.openLines(time.Now()))
}

// show prints and records a message, unless the filter holds it back.
func (v *view) show(m bus.Message, recorder *recorder, out io.Writer) error {
	line, err := v.Line(m, time.Now())
	if err != nil {
		line = words.OneLine(err.Error())
	}
	if line == "" {
		return nil
	}
	if err := recorder.add(m, false); err != nil {
		return err
	}
	return printLines(out, []string{line})
}

func printLines(out io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// readNames learns which pod has which UID from the retained pods. Without the bus it goes on: names
// are learned from the messages too. Where no history follows, the retained pods are also what the first
// changes are told against.
func (v *view) readNames(ctx context.Context, transport bus.Transport, remember bool, recorder *recorder) error {
	limited, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	for d := range transport.WatchState(limited, []string{bus.Filter(topic.PodUpdate)}) {
		if d.Synced {
			return nil
		}
		e := v.enter(d.Message)
		if remember {
			v.remember(d.Message)
		}
		if !v.filter.matchesPod(e.ref, v.labels[e.ref.UID]) {
			continue
		}
		if err := recorder.add(d.Message, true); err != nil {
			return err
		}
	}
	return ctx.Err()
}
