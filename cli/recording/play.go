package recording

import (
	"context"
	"iter"
	"time"

	"kubelot.dev/bus/pause"
)

// longest keeps a slow replay of a long recording within what a duration can be.
const longest = 1 << 62

// Pace waits until it is a message's turn. The first message is shown at once, and the others as long after it as they
// came, divided by the speed. It begins with the first wait.
type Pace struct {
	// Speed is how many times faster than it was; 0 means without pauses.
	Speed float64

	began, origin time.Time
}

// Wait waits until it is the turn of a message of that time, or until ctx ends. It reports whether the turn has come.
func (p *Pace) Wait(ctx context.Context, at time.Time) bool {
	if p.began.IsZero() {
		p.began, p.origin = time.Now(), at
	}
	if p.Speed > 0 {
		later := min(float64(at.Sub(p.origin))/p.Speed, float64(longest))
		pause.For(ctx, time.Until(p.began.Add(time.Duration(later))))
	}
	return ctx.Err() == nil
}

// Play yields the records as they came: those that were retained at once, and those from before begin too; a zero
// begin is the beginning. The others wait for their turn. It ends with ctx or with the recording. An error is the last
// that it yields.
func (r *Reader) Play(ctx context.Context, speed float64, begin time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		pace := Pace{Speed: speed}
		for record, err := range r.All() {
			late := err == nil && !record.Retained && !record.Time.Before(begin)
			if late && !pace.Wait(ctx, record.Time) || !yield(record, err) {
				return
			}
		}
	}
}
