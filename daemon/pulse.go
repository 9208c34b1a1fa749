package daemon

import (
	"context"
	"sync"
	"time"
)

// patience is how long a daemon's loop may take to answer before a beat is left out.
const patience = 20 * time.Second

// Pulse makes a daemon's beats depend on its loop. A daemon whose loop hangs must not be reported as healthy, and
// systemd's watchdog must restart it. Daemons name their loops with Of (docs/adr/0011). A nil Pulse doesn't look at any
// loop.
type Pulse struct {
	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // the loops', which outlives the call
	loops []chan<- func()
}

// Of makes the beats depend on each of the loops until ctx ends. A loop runs the functions that it receives from its
// channel.
func (p *Pulse) Of(ctx context.Context, loops ...chan<- func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.loops = ctx, loops
}

// beats reports whether all loops answer, or there is none. It is false when ctx ends before that is known.
func (p *Pulse) beats(ctx context.Context) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	loopCtx, loops := p.ctx, p.loops
	p.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, loop := range loops {
		select {
		case loop <- func() {}:
		case <-loopCtx.Done():
			return true
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}
