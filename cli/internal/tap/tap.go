// Package tap shows the messages on the bus, one readable line each, records them and shows recordings again.
//
// # Reads
//
// Every topic, as raw messages; pod.update for the names and labels of pods.
//
// # Writes
//
// A recording: JSON lines, the first of which says so (see package recording).
//
// # Guarantees
//
//   - Values of env entries, HTTP probe headers and kubectl's copy of the manifest are hidden unless asked for. In
//     recordings they are always hidden.
//   - A message that can't be decoded is shown as such; the tap goes on. Its content isn't recorded, because nobody can
//     say what in it is secret.
//   - A recording also has what the bus had retained before. One of some pods also has what was said of the node.
package tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/cli/recording"
)

// namesTimeout bounds the reading of the pods' names before the first line.
const namesTimeout = 2 * time.Second

// Options say what is shown.
type Options struct {
	Filter Filter
	Format Format
	// Since asks for history from that long ago.
	Since time.Duration
	// Once ends it where the history ends.
	Once bool
	// Record gets what is shown and what that can't be understood without, as a recording; nil for none.
	Record io.Writer
	// Version is kubelot's, and Settings are those of the node's configuration that a check of the recording needs.
	Version  string
	Settings map[string]any
}

// Run shows messages until ctx ends, or the history with Once, and then which steps are still open. Meanwhile it says
// of steps that take long for how long they have been open.
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
	if o.Since > 0 || o.Record != nil {
		from.Since = now.Add(-max(0, o.Since)) // a recording lacks nothing that was said before the bus listens
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := transport.WatchEvents(ctx, filters, from)
	view := newView(o.Format, o.Filter)
	var recorder *recorder
	if o.Record != nil {
		begin := now.Add(-max(0, o.Since))
		h := recording.Header{Created: now, From: begin, Kubelot: o.Version, Settings: o.Settings}
		if recorder, err = newRecorder(o.Record, h); err != nil {
			return err
		}
	}
	if err := view.readRetained(ctx, transport, o.Since == 0, recorder); err != nil {
		return err
	}
	if err := view.follow(messages, recorder, o.Once, out); err != nil {
		return err
	}
	return printLines(out, view.openLines(time.Now(), nil))
}

// follow shows the messages until there are no more, or with once until the mark of the history's end.
func (v *view) follow(messages <-chan bus.Delivery, recorder *recorder, once bool, out io.Writer) error {
	reminder := time.NewTicker(remindEvery)
	defer reminder.Stop()
	var told reminders // nil while the history is shown: the ends of its steps follow
	for {
		select {
		case d, ok := <-messages:
			switch {
			case !ok || d.Synced && once:
				return nil
			case d.Synced:
				told = reminders{}
				continue
			}
			if err := v.show(d.Message, recorder, out); err != nil {
				return err
			}
		case now := <-reminder.C:
			if told == nil {
				continue
			}
			if err := printLines(out, v.openLines(now, told)); err != nil {
				return err
			}
		}
	}
}

// ofNode reports whether the message is about no pod, and held back only because it isn't. It belongs to a recording of
// pods, which can't be understood without it.
func (v *view) ofNode(m bus.Message) bool {
	f := v.filter
	if len(f.Topics) > 0 || f.Daemon != "" || f.Errors || f.SlowerThan > 0 {
		return false
	}
	name, key := split(m.Subject)
	return !strings.HasPrefix(keysOf(name), "<uid>") && v.learn(name, key, m) == topic.Ref{}
}

// show prints and records a message, unless the filter holds it back.
func (v *view) show(m bus.Message, recorder *recorder, out io.Writer) error {
	line, err := v.Line(m, time.Now())
	if err != nil {
		line = words.OneLine(err.Error())
	}
	if line == "" && (recorder == nil || !v.ofNode(m)) {
		return nil
	}
	if err := recorder.add(m, false); err != nil || line == "" {
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

// readRetained learns which pod has which UID from the retained pods. Without the bus it goes on: names are learned
// from the messages too. If ctx ends it isn't an error, as it isn't one later. Where no history follows, the retained
// pods are also what the first changes are told against. A recorder gets what is retained of all topics.
func (v *view) readRetained(ctx context.Context, transport bus.Transport, remember bool, recorder *recorder) error {
	limited, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	only := Filter{Topics: []string{topic.PodUpdate.Name()}}
	if recorder != nil {
		only = v.filter
	}
	var others []bus.Message
	var failed error // to record
	err := retained(limited, transport, only, func(m bus.Message) error {
		if name, _ := split(m.Subject); name != topic.PodUpdate.Name() {
			others = append(others, m)
			return nil
		}
		if remember {
			v.remember(m)
		}
		failed = v.record(m, recorder)
		return failed
	})
	switch {
	case err != nil && limited.Err() != nil:
		return failed // the bus is away, or this was interrupted
	case err != nil:
		return err
	}
	for _, m := range others { // the labels of their pods are known now
		if err := v.record(m, recorder); err != nil {
			return err
		}
	}
	return nil
}

// record records a retained message, unless it is about a pod that the filter holds back. What the node's state was
// belongs to a recording of pods too.
func (v *view) record(m bus.Message, recorder *recorder) error {
	e := v.enter(m)
	ofPod := strings.HasPrefix(keysOf(e.name), "<uid>")
	if ofPod && !v.filter.matchesPod(e.ref, v.labels[e.ref.UID]) {
		return nil
	}
	return recorder.add(m, true)
}
