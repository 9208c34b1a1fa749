package daemon

import (
	"context"
	"sync"
	"time"
)

// patience is how long a daemon's loop may take to come round before a beat is left out.
const patience = 20 * time.Second

// Pulse makes a daemon's beats depend on its loop: one that hangs must not be called well, nor be left alone by systemd's watchdog.
// podsync, pleg and probe have named theirs (docs/adr/0011). A nil Pulse asks nobody.
type Pulse struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // the loop's, which outlives the call
	loop chan<- func()
}

// Of has the beats depend on the loop that runs the functions it receives from the channel, until ctx ends.
func (p *Pulse) Of(ctx context.Context, loop chan<- func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.loop = ctx, loop
}

// beats tells whether the loop comes round, or there is none (any more); false when ctx ends before that is known.
func (p *Pulse) beats(ctx context.Context) bool {
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
