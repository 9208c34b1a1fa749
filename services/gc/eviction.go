package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
)

// pass is where the relief of one of the node's conditions is.
type pass struct {
	// awaited is the pod that was evicted last, until when it is waited for; soft tells that it was for a soft threshold.
	awaited string
	until   time.Time
	soft    bool
	// since is when there was something to be done.
	since time.Time
	// rest is until when nothing is tried.
	rest time.Time
	// waits are for figures, by which the next pod is chosen.
	waits evict.Waits
}

// evict begins to do something about the thresholds. Each condition is relieved beside the others: a slow disk keeps nobody from
// freeing memory.
func (s *Service) evict(ctx context.Context, due []evict.Due, now time.Time) {
	for _, c := range []struct {
		job       job
		condition corev1.NodeConditionType
	}{{jobMemory, corev1.NodeMemoryPressure}, {jobDisk, corev1.NodeDiskPressure}, {jobPID, corev1.NodePIDPressure}} {
		other := func(t evict.Due) bool { return t.Signal.Condition() != c.condition }
		mine := slices.DeleteFunc(slices.Clone(due), other)
		if s.mayRelieve(c.job, mine, now) {
			s.start(ctx, c.job, s.relieve(c.job, mine, now))
		}
	}
}

// mayRelieve tells whether something is to be begun about a condition.
func (s *Service) mayRelieve(j job, due []evict.Due, now time.Time) bool {
	p := &s.passes[j]
	if p.since.IsZero() {
		p.since = now
	}
	hard := func(t evict.Due) bool { return t.Hard }
	reclaims := func(t evict.Due) bool { return evict.Reclaims(t.Signal, s.fs.Load().layout) != evict.Reclaim{} }
	switch {
	case len(due) == 0:
		p.rest, p.waits, p.since = time.Time{}, nil, time.Time{}
		s.report.problems.Set(problems[j], nil)
		return false
	case s.schedule.running[j], len(s.world.unread) > 0, now.Before(p.rest), j == jobDisk && !s.fs.Load().known:
		return false
	case s.world.waiting(now) != "" && now.Sub(p.since) < reclaimTimeout && slices.ContainsFunc(due, reclaims):
		return false // until it is known what is of no use
	case p.soft && slices.ContainsFunc(due, hard) && s.world.pods[p.awaited].Lifecycle != topic.Terminated:
		// It has been given more time than there is left: it is asked for again, with less.
		delete(s.evicted, p.awaited)
		p.awaited, p.soft = "", false
	case p.awaited != "":
		// What it has freed the next reading tells.
		if s.gone(p.awaited) || !now.Before(p.until) {
			p.awaited, p.soft = "", false
		}
		return false
	}
	return true
}

// gone tells whether what the pod used is free. Its containers' end alone leaves its volumes and its cgroup.
func (s *Service) gone(uid string) bool {
	p, there := s.world.pods[uid]
	return !there || p.Lifecycle == topic.Terminated && p.Released
}

// candidates are the pods that have not ended, were not evicted and are accepted by want.
func (s *Service) candidates(now time.Time, want func(*corev1.Pod) bool) []evict.Candidate {
	var all []evict.Candidate
	for _, uid := range slices.Sorted(maps.Keys(s.world.pods)) {
		p := s.world.pods[uid]
		// An eviction that podsync has forgotten, such as over a restart, is one that never was.
		until, evicted := s.evicted[uid]
		evicted = evicted && (p.Lifecycle != topic.Syncing || now.Before(until))
		if p.Pod != nil && p.Lifecycle != topic.Terminated && !evicted && want(p.Pod) {
			runs := slices.ContainsFunc(s.world.seen[uid].Sandboxes, func(b topic.Sandbox) bool { return b.Ready })
			all = append(all, evict.Candidate{Pod: p.Pod, Static: p.Static(), Runs: runs})
		}
	}
	return all
}

// onEvicted remembers an eviction until its pod should be gone.
func (s *Service) onEvicted(uid string, grace int64, now time.Time) (until time.Time) {
	until = now.Add(time.Duration(grace)*time.Second + goneTimeout)
	s.evicted[uid] = until
	return until
}

// relieve tries one threshold after the other until something could be done.
func (s *Service) relieve(j job, due []evict.Due, now time.Time) work {
	p := &s.passes[j]
	r := relief{service: s, snapshot: s.snapshot(now), waits: p.waits}
	if r.waits == nil {
		r.waits = evict.Waits{}
	}
	return func(ctx context.Context) func() {
		err := r.run(ctx, due)
		return func() {
			s.report.problems.Set(problems[j], err)
			s.keepRecords(r.learned)
			now := time.Now()
			p.waits = r.waits
			switch {
			case r.evicted != "":
				p.awaited, p.until, p.soft = r.evicted, s.onEvicted(r.evicted, r.grace, now), r.soft
				p.waits = nil
			case r.relieved:
			case !r.awaits.IsZero() && !r.silent:
				p.rest = now.Add(readEvery / 2) // until the next reading
			default:
				p.rest = now.Add(restPeriod)
				if end := r.awaits; !end.IsZero() && end.Before(p.rest) {
					p.rest = end
				}
			}
		}
	}
}

// errEnded is a pod that has ended before it could be evicted.
var errEnded = errors.New("the pod has ended already")

// ending is a pod's eviction.
type ending struct {
	pod     *corev1.Pod
	signal  evict.Signal
	message string
	// annotations are the Event's.
	annotations map[string]string
	disruption  string
	grace       int64
	// reason explains it on the bus.
	reason string
}

// end has podsync end the pod, and tells of it. The error is errEnded where there is nothing to end.
func (s *Service) end(ctx context.Context, e ending) error {
	d := aboutPod(topic.DeedEvict, e.pod, e.reason)
	reply, err := call(ctx, s.env.Bus, topic.PodEvict, topic.Eviction{
		Ref: *d.Pod, Reason: evict.Reason, Message: e.message, Disruption: e.disruption, GracePeriodSeconds: &e.grace,
	})
	if err != nil {
		d.Error = err.Error()
		s.report.decided(d)
		return fmt.Errorf("evict pod %s: %w", d.Object, err)
	}
	if reply.Ended {
		return errEnded
	}
	s.report.decided(d)
	s.env.Events.Record(topic.Event{
		Kind: "Pod", Ref: *d.Pod, Type: corev1.EventTypeWarning, Reason: evict.Reason, Message: e.message, Annotations: e.annotations,
	})
	s.metrics.evictions.WithLabelValues(string(e.signal)).Inc()
	return nil
}
