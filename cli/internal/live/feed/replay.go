package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/recording"
)

// ReplayOptions say how a recording is played.
type ReplayOptions struct {
	// Speed is how many times faster than it was; 0 plays all at once.
	Speed float64
	// Begin is the time from which it takes its time; zero for its beginning.
	Begin time.Time
	// End is the time at which it ends; zero for the recording's end.
	End time.Time
}

// Replay plays a recording until its end or that of ctx. It returns at once. An error in the recording ends it, and is
// shown as the problem of the bus.
func Replay(ctx context.Context, r *recording.Reader, o ReplayOptions) Feed {
	inputs := make(chan live.Input)
	p := &player{inputs: inputs, clock: clock{speed: o.Speed}}
	go func() {
		defer close(inputs)
		defer p.clock.stop()
		p.play(ctx, r, o)
	}()
	return Feed{Inputs: inputs, Now: p.clock.now}
}

// player turns the records into inputs.
type player struct {
	inputs   chan<- live.Input
	clock    clock
	retained []bus.Message
	began    bool
}

func (p *player) play(ctx context.Context, r *recording.Reader, o ReplayOptions) {
	p.send(ctx, live.Input{Link: &live.Link{Up: true}})
	for record, err := range r.Play(ctx, o.Speed, o.Begin) {
		if err != nil {
			p.send(ctx, live.Input{Link: &live.Link{Problem: fmt.Sprintf("the recording: %v", err)}})
			break
		}
		m := record.Message()
		if record.Retained {
			p.retained = append(p.retained, m)
			continue
		}
		if !o.End.IsZero() && m.Time.After(o.End) {
			p.clock.set(o.End)
			break
		}
		p.begin(ctx, m.Time)
		p.clock.set(m.Time)
		p.send(ctx, live.Input{Message: &m})
	}
	p.begin(ctx, r.Header().Created)
}

// begin hands over what was retained when the first message came. What is later than that was retained when the
// recording was made, and comes again as a message.
func (p *player) begin(ctx context.Context, at time.Time) {
	if p.began {
		return
	}
	p.began = true
	var before []bus.Message
	for _, m := range p.retained {
		if m.Time.Before(at) {
			before = append(before, m)
		}
	}
	p.clock.set(at)
	p.send(ctx, live.Input{Retained: before, RetainedAt: at.Add(-1)})
}

func (p *player) send(ctx context.Context, in live.Input) {
	select {
	case p.inputs <- in:
	case <-ctx.Done():
	}
}

// clock is the time of a replay: that of the last message and, while it plays, what has passed since then.
type clock struct {
	speed float64

	mu    sync.Mutex
	at    time.Time
	since time.Time // by the clock of the machine; zero when the replay is over
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.since = at, time.Now()
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Time{}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || c.speed == 0 {
		return c.at
	}
	return c.at.Add(time.Duration(float64(time.Since(c.since)) * c.speed))
}
