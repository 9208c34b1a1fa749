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

// pass is the state of the relief of one of the node's conditions.
type pass struct {
	// awaited is the pod that was evicted last, until when it is waited for; soft is true if it was for a soft threshold.
	awaited string
	until   time.Time
	soft    bool
	// unsure is that eviction while podsync's answer is missing; podsync is asked again.
	unsure *ending
	// since is when there was something to be done.
	since time.Time
	// rest is until when nothing is tried.
	rest time.Time
	// waits are for figures, by which the next pod is chosen, or for what the runtime is freeing.
	waits   evict.Waits
	freeing evict.Freeing
}

// evict begins to relieve the thresholds. Each condition has a relief of its own, so a slow disk doesn't delay the
// freeing of memory.
func (s *Service) evict(ctx context.Context, due []evict.Due, now time.Time) {
	for _, c := range []struct {
		job       job
		condition corev1.NodeConditionType
	}{{jobMemory, corev1.NodeMemoryPressure}, {jobDisk, corev1.NodeDiskPressure}, {jobPID, corev1.NodePIDPressure}} {
		other := func(t evict.Due) bool { return t.Signal.Condition() != c.condition }
		s.advance(ctx, c.job, slices.DeleteFunc(slices.Clone(due), other), now)
	}
}

// advance takes the next step about a condition whose thresholds are due.
func (s *Service) advance(ctx context.Context, j job, due []evict.Due, now time.Time) {
	p := &s.passes[j]
	awaitUnknown(s, p, now)
	// What a pod has that was evicted for its own limit may end a shortage that begins before it is gone.
	ending := p.freeing.UID != p.awaited && !s.gone(p.freeing.UID)
	if len(due) == 0 {
		p.rest, p.waits, p.since = time.Time{}, nil, time.Time{}
		if _, placed := s.disks[evict.ImageFSAvailable]; !ending && (placed || j != jobDisk) {
			p.freeing = evict.Freeing{}
		}
		if s.gone(p.awaited) || p.unsure != nil && s.state.pods[p.awaited].Lifecycle == topic.Syncing {
			p.forget()
		}
		s.report.problems.Set(problems[j], nil)
		return
	}
	if p.since.IsZero() {
		p.since = now
	}
	if !ending {
		p.freeing = p.freeing.Only(due)
	}
	relieve, forget := s.nextStep(j, due, now)
	if relieve && forget {
		delete(s.evicted, p.awaited) // else it is no candidate
	}
	if forget {
		p.awaitSpace(s.gone(p.awaited), now)
		p.forget()
	}
	if relieve {
		s.start(ctx, j, s.relieve(j, due, now))
	}
}

// resume goes on with the evictions of an earlier process. Each condition that held waits for the end of the last one,
// and disk space is waited for in any case: it may be that of a pod over its own limit, or of one that has just gone.
func resume(s *Service, now time.Time) {
	disk := &s.passes[jobDisk]
	for _, b := range evict.Underway(s.state.pods, s.settings.Load().maxGrace, now) {
		until := b.Until.Add(goneTimeout)
		if !b.Soft {
			s.evicted[b.UID] = until
			disk.freeing = evict.Freeing{Pod: b.Pod, UID: b.UID, Until: until}
		}
		for j := range s.passes {
			if p := &s.passes[j]; s.held[j] {
				p.awaited, p.until, p.soft = b.UID, until, b.Soft
			}
		}
	}
	freed := now.Add(freedTimeout - max(now.Sub(s.state.went), 0))
	if freed.After(now) && freed.After(disk.freeing.Until) {
		disk.freeing = evict.Freeing{Pod: "pods that have gone", Until: freed}
	}
}

func (p *pass) forget() { p.awaited, p.soft, p.unsure = "", false, nil }

// awaitSpace begins the wait for what the runtime frees of the pod that was evicted last, once it is gone. Where the
// shortage has ended since, nothing is waited for.
func (p *pass) awaitSpace(gone bool, now time.Time) {
	switch {
	case p.freeing.UID != p.awaited:
	case !gone:
		p.freeing = evict.Freeing{}
	default:
		p.freeing.Until = now.Add(reclaimTimeout)
	}
}

// awaitUnknown begins the wait for the space of a pod that is gone where nobody knows how much it is.
func awaitUnknown(s *Service, p *pass, now time.Time) {
	if f := &p.freeing; f.UID != "" && f.Becomes == nil && s.gone(f.UID) {
		*f = evict.Freeing{Pod: f.Pod, Until: now.Add(freedTimeout)}
	}
}

// nextStep chooses the next step about a condition that has thresholds due. relieve is true if a relief is to begin,
// forget if the pod that was evicted last is waited for no longer.
func (s *Service) nextStep(j job, due []evict.Due, now time.Time) (relieve, forget bool) {
	p := &s.passes[j]
	hard := func(t evict.Due) bool { return t.Hard }
	reclaims := func(t evict.Due) bool { return evict.Reclaims(t.Signal, s.fs.Load().layout) != evict.Reclaim{} }
	switch {
	case s.schedule.running[j], len(s.state.unread) > 0, now.Before(p.rest), j == jobDisk && !s.fs.Load().known:
		return false, false
	case s.state.waiting(now) != "" && now.Sub(p.since) < reclaimTimeout && slices.ContainsFunc(due, reclaims):
		return false, false // until it is known what is of no use
	case p.soft && slices.ContainsFunc(due, hard) && s.state.pods[p.awaited].Lifecycle != topic.Terminated:
		return true, true // it has been given more time than there is left, so it is evicted again, with less
	case p.awaited == "":
		return true, false
	case p.unsure != nil && !s.gone(p.awaited) && now.Before(p.until):
		return true, false
	}
	// The next reading shows what the pod has freed.
	return false, s.gone(p.awaited) || !now.Before(p.until)
}

// gone reports whether what the pod used is free. The end of its containers alone leaves its volumes and its cgroup.
func (s *Service) gone(uid string) bool {
	p, there := s.state.pods[uid]
	return !there || p.Lifecycle == topic.Terminated && p.Released
}

// candidates are the pods that have not ended, were not evicted and are accepted by want.
func (s *Service) candidates(now time.Time, want func(*corev1.Pod) bool) []evict.Candidate {
	var all []evict.Candidate
	for _, uid := range slices.Sorted(maps.Keys(s.state.pods)) {
		p := s.state.pods[uid]
		// An eviction that podsync has forgotten, such as over a restart, doesn't count.
		until, evicted := s.evicted[uid]
		evicted = evicted && (p.Lifecycle != topic.Syncing || now.Before(until))
		if p.Pod != nil && p.Lifecycle != topic.Terminated && !evicted && want(p.Pod) {
			runs := slices.ContainsFunc(s.state.seen[uid].Sandboxes, func(b topic.Sandbox) bool { return b.Ready })
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
	r := relief{
		service: s, snapshot: s.snapshot(now), waits: p.waits, again: p.unsure != nil, unsure: p.unsure, soft: p.soft,
	}
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
			if r.frees {
				p.freeing = r.freeing
			}
			switch {
			case r.again && r.unsure != nil:
				p.rest = now.Add(againAfter)
			case r.again && r.evicted == "":
				p.forget() // podsync has refused
			case r.evicted != "":
				p.awaited, p.until, p.soft = r.evicted, s.onEvicted(r.evicted, r.grace, now), r.soft
				p.waits, p.unsure = nil, r.unsure
				if p.unsure != nil {
					p.rest = now.Add(againAfter)
				}
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
var errEnded = errors.New("the pod has already ended")

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

// end asks podsync to end the pod, and reports it. The error is errEnded if there is nothing to end.
func (s *Service) end(ctx context.Context, e ending) error {
	d := aboutPod(topic.ActionEvict, e.pod, e.reason)
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
		Kind: "Pod", Ref: *d.Pod, Type: corev1.EventTypeWarning, Reason: evict.Reason, Message: e.message,
		Annotations: e.annotations,
	})
	s.metrics.evictions.WithLabelValues(string(e.signal)).Inc()
	return nil
}
