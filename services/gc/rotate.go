package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/logs"
)

// log is a log of a running container.
type log struct {
	id, path string
	pod      topic.Ref
}

// runningLogs are the logs of running containers.
func (s *Service) runningLogs() []log {
	var all []log
	for _, o := range s.state.seen {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == topic.ContainerRunning && c.LogPath != "" {
				all = append(all, log{c.ID, c.LogPath, o.Ref})
			}
		}
	}
	return all
}

func (s *settings) whyRotate(size int64) string {
	return fmt.Sprintf("%d bytes, containerLogMaxSize is %s", size, s.logSize)
}

// rotator is the rotator with the settings' limits.
func (s *settings) rotator(r logs.Rotator) logs.Rotator {
	r.Policy = s.logs
	return r
}

// rotate rotates the logs of running containers that have grown too large, and fixes what a pass has left half done.
func (s *Service) rotate() work {
	all := s.runningLogs()
	return func(ctx context.Context) func() {
		errs := make([]error, len(all))
		var group errgroup.Group
		group.SetLimit(max(s.settings.Load().logWorkers, 1))
		for i, l := range all {
			group.Go(func() error {
				errs[i] = s.rotateOne(ctx, l)
				return nil
			})
		}
		_ = group.Wait() // its functions have no errors
		return func() { s.report.problems.Set("rotation of logs", errors.Join(s.stillRunning(all, errs)...)) }
	}
}

// stillRunning are the errors about logs of containers that run still: of one that has ended meanwhile the directory
// may be gone.
func (s *Service) stillRunning(all []log, errs []error) []error {
	runs := map[string]bool{}
	for _, l := range s.runningLogs() {
		runs[l.id] = true
	}
	var left []error
	for i, l := range all {
		if runs[l.id] {
			left = append(left, errs[i])
		}
	}
	return left
}

func (s *Service) rotateOne(ctx context.Context, l log) error {
	set := s.settings.Load()
	rotator := set.rotator(s.Logs)
	steps, size, err := rotator.Look(l.path, time.Now())
	if err != nil || steps.None() {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err = rotator.Do(ctx, l.id, l.path, steps)
	if steps.Rotate == "" {
		return err
	}
	d := topic.Decision{Action: topic.ActionRotateLog, Object: l.path, Pod: &l.pod, Reason: set.whyRotate(size)}
	if err != nil {
		d.Error = err.Error()
	} else {
		s.metrics.rotated.Inc()
	}
	s.report.decided(d)
	return err
}
