package daemon

import (
	"context"
	"sync"
	"time"
)

// patience is how long a daemon's loop may take to answer before a beat is left out.
const patience = 20 * time.Second

// Pulse makes a daemon's beats depend on its loop. A daemon whose loop hangs must not be reported as healthy, and
// systemd's watchdog must restart it. Daemons name their loop with Of (docs/adr/0011). A nil Pulse doesn't look at any
// loop.
type Pulse struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // the loop's, which outlives the call
	loop chan<- func()
}

// Of makes the beats depend on a loop until ctx ends. The loop runs the functions that it receives from the channel.
func (p *Pulse) Of(ctx context.Context, loop chan<- func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.loop = ctx, loop
}

// beats reports whether the loop answers, or there is no loop. It is false when ctx ends before that is known.
func (p *Pulse) beats(ctx context.Context) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	loopCtx, loop := p.ctx, p.loop
	p.mu.Unlock()
	if loop == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case loop <- func() {}:
		return true
	case <-loopCtx.Done():
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}
