package resource

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon"
)

const saveRetryFirst, saveRetryMax = 100 * time.Millisecond, 10 * time.Second

// unwritten is the problem of files that can't be written.
const unwritten = "can't write what pods have to the state files, so that pods wait for devices and CPUs"

// store writes what pods have to the state files: one writer, which takes what is newest each time. While a disk hangs
// or is full nobody gets anything, and everybody keeps what they have.
type store struct {
	// snapshot is what pods have; it asks the loop.
	snapshot func(ctx context.Context) (snapshot, error)
	write    func(snapshot) error
	problems *daemon.Problems
	log      *slog.Logger
	wake     chan struct{}

	mu      sync.Mutex
	waiters []chan struct{}
	writing bool
}

// run writes until ctx ends.
func (s *store) run(ctx context.Context) {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		waiters := s.waiters
		s.waiters, s.writing = nil, true
		s.mu.Unlock()
		for !s.once(ctx) {
			failures++
			pause.For(ctx, pause.After(failures, saveRetryFirst, saveRetryMax))
			if ctx.Err() != nil {
				return
			}
		}
		if failures > 0 {
			s.problems.Set(unwritten, nil)
		}
		failures = 0
		s.mu.Lock()
		s.writing = false
		s.mu.Unlock()
		for _, done := range waiters {
			close(done)
		}
	}
}

// once reports whether the files were written.
func (s *store) once(ctx context.Context) bool {
	now, err := s.snapshot(ctx)
	if err == nil {
		err = s.write(now)
	}
	if err != nil && ctx.Err() == nil && !s.problems.Set(unwritten, err) {
		s.log.Error("can't write what pods have to the state files, retrying", "error", err)
	}
	return err == nil
}

// soon has the files written.
func (s *store) soon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// busy reports whether something is being written, or is to be.
func (s *store) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writing || len(s.wake) > 0
}

// save returns when what pods have now is on the disk.
func (s *store) save(ctx context.Context) error {
	done := make(chan struct{})
	s.mu.Lock()
	s.waiters = append(s.waiters, done)
	s.mu.Unlock()
	s.soon()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
