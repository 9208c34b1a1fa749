package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
)

// limitGrace is how long a pod has to end that uses more than it may, in seconds.
const limitGrace = 1

// limits evicts the pods that use more local storage than they may. Only those that have a limit are measured.
func (s *Service) limits() work {
	pods := s.candidates(time.Now(), evict.LimitsStorage)
	return func(ctx context.Context) func() {
		over, err := s.overLimits(ctx, pods)
		return func() {
			s.report.problems.Set("limits on local storage", err)
			for _, uid := range over {
				s.onEvicted(uid, limitGrace, time.Now())
			}
		}
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
	var over []excess
	for _, c := range withStats(pods, &summary) {
		if by, message := evict.OverLimit(c, s.fs.Load().layout); message != "" {
			over = append(over, excess{c, by, message})
		}
	}
	return over, nil
}

func (s *Service) overLimits(ctx context.Context, pods []evict.Candidate) (evicted []string, err error) {
	over, err := s.excesses(ctx, pods)
	errs := []error{err}
	for _, c := range over {
		if c.Critical() {
			s.report.decided(aboutPod(topic.ActionKeep, c.Pod, "it would be evicted if it weren't critical: "+c.message))
			continue
		}
		// The kubelet gives these pods no DisruptionTarget: the fault is theirs.
		if err := s.end(ctx, ending{
			pod: c.Pod, signal: c.by, message: c.message, grace: limitGrace,
			reason: c.message,
		}); err != nil {
			if !errors.Is(err, errEnded) {
				errs = append(errs, err)
			}
			continue
		}
		evicted = append(evicted, string(c.Pod.UID))
	}
	return evicted, errors.Join(errs...)
}
