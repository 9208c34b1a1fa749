package probe

import (
	"context"
	"time"
)

// idleFor is how long a worker is kept that isn't needed, at least; it is at most twice as long.
const idleFor = 30 * time.Second

// workers counts the goroutines that have no run. Runs come often and last, and the stack of one that has run a probe
// has grown to what that needs; those that no run has needed for a while end, so that what a burst made them is no
// lasting burden.
type workers struct {
	free int
	// least is how few were free at one time since the last review.
	least int
	// review is when surplus ones are looked for; zero while none is free.
	review time.Time
}

// take takes a free worker, if there is one.
func (w *workers) take() bool {
	if w.free == 0 {
		return false
	}
	w.free--
	w.least = min(w.least, w.free)
	return true
}

// put takes back a worker; it is not kept if there are so many without it.
func (w *workers) put(now time.Time, most int) (kept bool) {
	if w.free >= most {
		return false
	}
	if w.review.IsZero() {
		w.least, w.review = 0, now.Add(idleFor)
	}
	w.free++
	return true
}

// shrink gives up the workers that were free since the last review, and returns how many are to end.
func (w *workers) shrink(now time.Time) int {
	if w.review.IsZero() || w.review.After(now) {
		return 0
	}
	n := w.least
	w.free -= n
	w.least, w.review = w.free, now.Add(idleFor)
	if w.free == 0 {
		w.review = time.Time{}
	}
	return n
}

// work runs what it is given until ctx ends, or it gets a run without a probe.
func (s *Service) work(ctx context.Context, r run) {
	for r.probe != nil {
		found, err := s.checker.Run(ctx, r.target, r.spec)
		if ctx.Err() != nil {
			return // the daemon stops: what looks like a failure may be a request that was broken off
		}
		select {
		case s.results <- result{r.probe, found, err}:
		case <-ctx.Done():
			return
		}
		select {
		case r = <-s.runs:
		case <-ctx.Done():
			return
		}
	}
}

// dismiss ends so many free workers.
func (s *Service) dismiss(ctx context.Context, n int) {
	for range n {
		s.hand(ctx, run{})
	}
}

// hand gives the run to some worker, which waits for it or is about to. When ctx ends the workers leave without it.
func (s *Service) hand(ctx context.Context, r run) {
	select {
	case s.runs <- r:
	case <-ctx.Done():
	}
}
