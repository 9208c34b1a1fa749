package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/gc/internal/evict"
)

// limitGrace is how long a pod has to end that uses more than it may, in seconds.
const limitGrace = 1

// limits evicts the pods that use more local storage than they may. Only those that have a limit are measured.
func (s *Service) limits() work {
	pods := s.candidates(time.Now(), evict.LimitsStorage)
	return func(ctx context.Context) func() {
		over, err := s.excesses(ctx, pods)
		_, failed := s.overLimits(ctx, over)
		return func() { s.report.problems.Set("limits on local storage", errors.Join(err, failed)) }
	}
}

// excess is a pod that uses more than it may, by which limit, and the message that says so.
type excess struct {
	evict.Candidate
	by      evict.Signal
	message string
}

// excesses measures the pods.
func (s *Service) excesses(ctx context.Context, pods []evict.Candidate) ([]excess, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	// The runtime measures writable layers every 10 s: for newer figures stats would count them all itself, each time.
	request := topic.SummaryRequest{MaxAge: limitsEvery}
	for _, c := range pods {
		request.Pods = append(request.Pods, string(c.Pod.UID))
	}
	summary, err := call(ctx, s.env.Bus, topic.StatsSummary, request)
	if err != nil {
		return nil, fmt.Errorf("the usage of pods with a limit on local storage is unknown: %w", err)
	}
	return excessesOf(withStats(pods, &summary), s.fs.Load().layout), nil
}

// excessesOf are those of the pods with figures that use more than they may.
func excessesOf(pods []evict.Candidate, l evict.Layout) (over []excess) {
	for _, c := range pods {
		if by, message := evict.OverLimit(c, l); message != "" {
			over = append(over, excess{c, by, message})
		}
	}
	return over
}

// overLimits evicts pods that use more than they may. some is true if any was evicted, or may have been.
func (s *Service) overLimits(ctx context.Context, over []excess) (some bool, err error) {
	var errs []error
	for _, c := range over {
		if c.Critical() {
			s.report.decided(aboutPod(topic.ActionKeep, c.Pod, "it would be evicted if it weren't critical: "+c.message))
			continue
		}
		first, gone := loop.Ask(ctx, s.loop, func() bool { return c.begin(s, time.Now()) })
		if gone != nil {
			return some, errors.Join(append(errs, gone)...)
		}
		if !first {
			continue
		}
		// The kubelet gives these pods no DisruptionTarget: the fault is theirs.
		err := s.end(ctx, ending{pod: c.Pod, signal: c.by, message: c.message, grace: limitGrace, reason: c.message})
		ended := errors.Is(err, errEnded)
		idle := ended || refused(err)
		if some = some || !idle; err == nil {
			continue
		}
		s.loop.Do(ctx, func() { // it is asked again; podsync may end it although its answer is missing
			delete(s.evicted, string(c.Pod.UID))
			if f := &s.passes[jobDisk].freeing; f.UID == string(c.Pod.UID) && idle {
				*f = evict.Freeing{}
			}
		})
		if !ended {
			errs = append(errs, err)
		}
	}
	return some, errors.Join(errs...)
}

// begin notes that the pod is evicted, unless it is already: until it is gone, no other pod is evicted for disk space
// that this one frees.
func (c excess) begin(s *Service, now time.Time) (first bool) {
	uid := string(c.Pod.UID)
	if until, evicted := s.evicted[uid]; evicted && now.Before(until) {
		return false
	}
	s.onEvicted(uid, limitGrace, now)
	f := &s.passes[jobDisk].freeing
	*f = evict.FreedBy(evict.Ranked{Candidate: c.Candidate, Known: true}, s.fs.Load().layout, s.obs, *f, now)
	f.Until = now.Add(reclaimTimeout)
	return true
}
