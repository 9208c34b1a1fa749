package credentialprovider

import (
	"context"
	"errors"
	"sync"
)

// errNobodyWaits ends a run whose answer nobody waits for any more.
var errNobodyWaits = errors.New("no pull waits for its answer any more")

// flights lets callers who ask for the same share one run.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

// flight is one run. waiters is under the lock of flights; the results are written before done is closed.
type flight struct {
	cancel  context.CancelCauseFunc
	waiters int
	done    chan struct{}
	logins  map[string]login
	err     error
}

// do joins the run of that key, or begins it, and waits for its end. When the last one gives up, the run ends.
func (f *flights) do(ctx context.Context, key string, run func(context.Context) (map[string]login, error),
) (map[string]login, error) {
	fl := f.join(ctx, key, run)
	select {
	case <-fl.done:
		f.leave(key, fl)
		return fl.logins, fl.err
	case <-ctx.Done():
		if f.leave(key, fl) {
			fl.cancel(errNobodyWaits)
			<-fl.done
		}
		return nil, context.Cause(ctx)
	}
}

func (f *flights) join(ctx context.Context, key string, run func(context.Context) (map[string]login, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.all[key]
	if fl == nil {
		fl = &flight{done: make(chan struct{})}
		// The run belongs to all who wait: it must not end with the first one's context.
		var runCtx context.Context
		runCtx, fl.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		if f.all == nil {
			f.all = map[string]*flight{}
		}
		f.all[key] = fl
		go func() {
			defer close(fl.done)
			defer fl.cancel(nil)
			fl.logins, fl.err = run(runCtx)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.dropLocked(key, fl)
		}()
	}
	fl.waiters++
	return fl
}

// leave reports whether nobody is left. Nobody joins a run that is over or abandoned.
func (f *flights) leave(key string, fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.waiters--
	if fl.waiters == 0 {
		f.dropLocked(key, fl)
	}
	return fl.waiters == 0
}

func (f *flights) dropLocked(key string, fl *flight) {
	if f.all[key] == fl {
		delete(f.all, key)
	}
}
