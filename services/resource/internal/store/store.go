// Package store writes what is newest to the disk: one writer, which goes on where a write has failed.
package store

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

// Config is what a store works with.
type Config[Snapshot any] struct {
	// Snapshot is what is newest.
	Snapshot func(ctx context.Context) (Snapshot, error)
	Write    func(Snapshot) error
	Problems *daemon.Problems
	Log      *slog.Logger
}

// Store writes what pods have to the state files: one writer, which takes what is newest each time. While a disk hangs
// or is full nobody gets anything, and everybody keeps what they have.
type Store[Snapshot any] struct {
	Config[Snapshot]
	wake chan struct{}

	mu      sync.Mutex
	waiters []chan struct{}
	writing bool
}

// New makes a store, which writes nothing before Run.
func New[Snapshot any](cfg Config[Snapshot]) *Store[Snapshot] {
	return &Store[Snapshot]{Config: cfg, wake: make(chan struct{}, 1)}
}

// Run writes until ctx ends.
func (s *Store[Snapshot]) Run(ctx context.Context) {
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
			s.Problems.Set(unwritten, nil)
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
func (s *Store[Snapshot]) once(ctx context.Context) bool {
	now, err := s.Snapshot(ctx)
	if err == nil {
		err = s.Write(now)
	}
	if err != nil && ctx.Err() == nil && !s.Problems.Set(unwritten, err) {
		s.Log.Error("can't write what pods have to the state files, retrying", "error", err)
	}
	return err == nil
}

// Soon has the files written.
func (s *Store[Snapshot]) Soon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Busy reports whether something is being written, or is to be.
func (s *Store[Snapshot]) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writing || len(s.wake) > 0
}

// Save returns when what pods have now is on the disk.
func (s *Store[Snapshot]) Save(ctx context.Context) error {
	done := make(chan struct{})
	s.mu.Lock()
	s.waiters = append(s.waiters, done)
	s.mu.Unlock()
	s.Soon()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
