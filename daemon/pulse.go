package daemon

import (
	"context"
	"slices"
	"sync"
	"time"
)

// patience is how long a daemon's loops may take to answer before a beat is left out.
const patience = 20 * time.Second

// Pulse makes a daemon's beats depend on its loops. While one of them hangs, the daemon must not be reported as healthy
// and systemd's watchdog must restart it. Daemons name their loops with Of (docs/adr/0011). A nil Pulse doesn't look at
// any loop.
type Pulse struct {
	mu    sync.Mutex
	loops []running
}

// running is a loop that was named, until ctx ends.
type running struct {
	ctx  context.Context //nolint:containedctx // the loop's, which outlives the call
	loop chan<- func()
}

// Of makes the beats depend on each of the loops until ctx ends, besides those that were named before. A loop runs the
// functions that it receives from its channel.
func (p *Pulse) Of(ctx context.Context, loops ...chan<- func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops = slices.DeleteFunc(p.loops, func(r running) bool { return r.ctx.Err() != nil })
	for _, loop := range loops {
		p.loops = append(p.loops, running{ctx, loop})
	}
}

// beats reports whether all loops that run answer, or there is none. It is false when ctx ends before that is known.
func (p *Pulse) beats(ctx context.Context) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	loops := slices.Clone(p.loops)
	p.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, r := range loops {
		select {
		case r.loop <- func() {}:
		case <-r.ctx.Done():
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}
