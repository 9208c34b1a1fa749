package tap

import (
	"context"
	"errors"
	"io"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/cli/recording"
)

// ReplayOptions say what is shown of a recording, and how fast.
type ReplayOptions struct {
	Filter Filter
	Format Format
	// Speed is how many times faster than it was; 0 shows all at once.
	Speed float64
	// At is how long after the first message the replay begins, and AtTime when, if it isn't zero.
	At     time.Duration
	AtTime time.Time
}

// OpenRecording reads the header of a recording. The error says what the file is if it isn't one that can be read.
func OpenRecording(in io.Reader) (*recording.Reader, error) { return recording.Open(in) }

// begin is when the replay begins.
func (o ReplayOptions) begin(first time.Time) time.Time {
	if !o.AtTime.IsZero() {
		return o.AtTime
	}
	return first.Add(o.At)
}

// Replay shows a recording until its end or that of ctx, and then which steps were open.
func Replay(ctx context.Context, r *recording.Reader, o ReplayOptions, out io.Writer) error {
	if _, err := o.Filter.selected(); err != nil {
		return err
	}
	p := replay{view: newView(o.Format, o.Filter), pace: recording.Pace{Speed: o.Speed}}
	for ctx.Err() == nil {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return printLines(out, p.view.openLines(p.last, nil))
		}
		if err != nil {
			return err
		}
		m := rec.Message()
		if rec.Retained {
			p.view.know(m, r.Header().From)
			continue
		}
		begin := o.begin(r.First())
		if p.view.format.Begin.IsZero() {
			p.view.format.Begin = r.First()
		}
		p.last = m.Time
		if m.Time.Before(begin) {
			p.view.know(m, begin)
			continue
		}
		if err := p.show(ctx, m, out); err != nil {
			return err
		}
	}
	return nil
}

// know learns from a message that isn't shown. What is later than the replay's begin is no predecessor of what is
// shown.
func (v *view) know(m bus.Message, begin time.Time) {
	v.enter(m)
	if !m.Time.After(begin) {
		v.remember(m)
	}
}

// replay is the shell of Replay: it waits until it is a message's turn.
type replay struct {
	view *view
	pace recording.Pace
	last time.Time
}

func (p *replay) show(ctx context.Context, m bus.Message, out io.Writer) error {
	line, err := p.view.Line(m, m.Time)
	if err != nil {
		line = words.OneLine(err.Error())
	}
	if line == "" || !p.pace.Wait(ctx, m.Time) {
		return nil
	}
	return printLines(out, []string{line})
}
