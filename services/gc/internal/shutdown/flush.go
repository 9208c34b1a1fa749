package shutdown

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
)

const (
	// Reserve is how long the statuses have at least after the last group. Logind is asked for as much more.
	Reserve = 5 * time.Second
	// flushEvery is how often it is asked whether they are written.
	flushEvery = 100 * time.Millisecond
	// flushTimeout is how long status may take to answer.
	flushTimeout = time.Second
	// margin is kept from logind's limit: the lock is released before it is ignored.
	margin = 200 * time.Millisecond
)

// errOutage is an API server that can't be reached.
var errOutage = errors.New("the API server can't be reached")

// flush waits beside the loop until all statuses are at the API server, or their time is over.
func (s *Service) flush(ctx context.Context, u *underway) {
	state := s.state
	limit := func() time.Duration { return 0 }
	if s.lock != nil && state.Trigger == topic.ByLogind {
		limit = s.lock.Limit
	}
	s.loop.Go(func() {
		var left error
		for u.ctx.Err() == nil {
			left = s.left(u) //nolint:contextcheck // it ends with u
			if left == nil || !time.Now().Before(flushUntil(state, limit(), errors.Is(left, errOutage))) {
				break
			}
			pause.For(u.ctx, flushEvery) //nolint:contextcheck // it ends with ctx
		}
		s.loop.Do(ctx, func() {
			if s.under == u {
				s.done(left)
			}
		})
	})
}

// flushUntil is when the statuses' time is over: the configured time, but not before Reserve after the pods' end. An
// API server that can't be reached gets no more than Reserve. Nothing gets more than logind gives.
func flushUntil(s topic.Shutdown, limit time.Duration, outage bool) time.Time {
	until := s.Ended.Add(Reserve)
	if whole := s.Started.Add(Total(s.Groups)); whole.After(until) && !outage {
		until = whole
	}
	if end := s.Started.Add(limit - margin); limit > 0 && end.Before(until) {
		until = end
	}
	return until
}

// left says what the API server doesn't have yet; nil for nothing.
func (s *Service) left(u *underway) error {
	ctx, cancel := context.WithTimeout(u.ctx, flushTimeout)
	defer cancel()
	pods, err := topic.PodUpdate.Read(ctx, s.env.Bus)
	if err != nil {
		return fmt.Errorf("the bus doesn't say which pods are left: %w", err)
	}
	reply, err := topic.StatusUnwritten.Do(ctx, s.env.Bus, topic.UnwrittenRequest{UIDs: slices.Sorted(maps.Keys(pods))})
	switch {
	case err != nil:
		return fmt.Errorf("it isn't known which pods' statuses are written: %w", err)
	case len(reply.UIDs) > 0:
		err = fmt.Errorf("%d pods have not ended, or their statuses are not at the API server: %s", len(reply.UIDs),
			names(pods, reply.UIDs))
	default:
		err = s.unready(ctx)
	}
	if err != nil && reply.Outage != "" {
		return errors.Join(err, fmt.Errorf("%w: %s", errOutage, reply.Outage))
	}
	return err
}

// unready is nil once the API server knows that the node isn't Ready.
func (s *Service) unready(ctx context.Context) error {
	if s.env.Config.Standalone() {
		return nil
	}
	nodes, err := topic.NodeObject.Read(ctx, s.env.Bus)
	if err != nil {
		return fmt.Errorf("the bus doesn't say what the API server knows of the node: %w", err)
	}
	for _, c := range nodes[""].Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return errors.New("the API server doesn't know yet that the node isn't Ready")
		}
	}
	return nil
}

// names are a few of the pods.
func names(pods map[string]topic.Pod, uids []string) string {
	var list []string
	for _, uid := range uids {
		if len(list) == 5 {
			list = append(list, "...")
			break
		}
		if p := pods[uid].Pod; p != nil {
			uid = p.Namespace + "/" + p.Name
		}
		list = append(list, uid)
	}
	return strings.Join(list, ", ")
}
