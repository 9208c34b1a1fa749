package tap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/cli/internal/words"
)

// maxLine bounds a line of a recording. The largest message of the bus is much smaller.
const maxLine = 2 * bus.MaxPayload

// Recording reads a recording.
type Recording struct {
	in   *bufio.Reader
	line int
	from time.Time
	// first is the time of the first message that isn't retained; zero before it was read.
	first time.Time
}

// OpenRecording reads the header. The error says what the file is if it isn't a recording that can be read.
func OpenRecording(in io.Reader) (*Recording, error) {
	r := &Recording{in: bufio.NewReader(in)}
	data, err := r.nextLine()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: it is no recording")
	}
	if err != nil {
		return nil, err
	}
	var h header
	if json.Unmarshal(data, &h) != nil || h.Format != magic {
		return nil, errors.New("the file is no recording: its first line isn't that of kubelot tap --record")
	}
	if h.Version < 1 || h.Version > formatVersion {
		return nil, fmt.Errorf("the recording has format %d, and this kubelot reads up to %d: use kubelot %s", h.Version,
			formatVersion, words.OneLine(h.Kubelot))
	}
	r.from = h.From
	return r, nil
}

// nextLine is the next line without its end; io.EOF behind the last one.
func (r *Recording) nextLine() ([]byte, error) {
	r.line++
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("line %d is longer than %d bytes: it is no message", r.line, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		default:
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		}
	}
}

// next is the next message; io.EOF behind the last one.
func (r *Recording) next() (record, error) {
	var rec record
	data, err := r.nextLine()
	switch {
	case errors.Is(err, io.EOF):
		return rec, err
	case err != nil:
		return rec, fmt.Errorf("read the recording: %w", err)
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, fmt.Errorf("line %d of the recording is no message: %w", r.line, err)
	}
	if rec.Subject == "" || rec.Time.IsZero() && !rec.Retained {
		return rec, fmt.Errorf("line %d of the recording is no message: it has no subject or no time", r.line)
	}
	if r.first.IsZero() && !rec.Retained {
		r.first = rec.Time
	}
	return rec, nil
}

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

// begin is when the replay begins.
func (o ReplayOptions) begin(first time.Time) time.Time {
	if !o.AtTime.IsZero() {
		return o.AtTime
	}
	return first.Add(o.At)
}

// Replay shows a recording until its end or that of ctx, and then which steps were open.
func Replay(ctx context.Context, r *Recording, o ReplayOptions, out io.Writer) error {
	if _, err := o.Filter.selected(); err != nil {
		return err
	}
	p := replay{view: newView(o.Format, o.Filter), speed: o.Speed}
	for ctx.Err() == nil {
		rec, err := r.next()
		if errors.Is(err, io.EOF) {
			return printLines(out, p.view.openLines(p.last))
		}
		if err != nil {
			return err
		}
		m := rec.message()
		if rec.Retained {
			p.view.know(m, r.from)
			continue
		}
		begin := o.begin(r.first)
		if p.view.format.Begin.IsZero() {
			p.view.format.Begin = r.first
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

// longest keeps a slow replay of a long recording within what a duration can be.
const longest = 1 << 62

// replay is the shell of Replay: it waits until it is a message's turn.
type replay struct {
	view  *view
	speed float64
	// began is when the first message was shown, whose time is origin.
	began, origin time.Time
	last          time.Time
}

func (p *replay) show(ctx context.Context, m bus.Message, out io.Writer) error {
	line, err := p.view.Line(m, m.Time)
	if err != nil {
		line = words.OneLine(err.Error())
	}
	if line == "" {
		return nil
	}
	if p.began.IsZero() {
		p.began, p.origin = time.Now(), m.Time
	}
	if p.speed > 0 {
		later := min(float64(m.Time.Sub(p.origin))/p.speed, float64(longest))
		pause.For(ctx, time.Until(p.began.Add(time.Duration(later))))
	}
	select {
	case <-ctx.Done():
		return nil
	default:
		return printLines(out, []string{line})
	}
}
