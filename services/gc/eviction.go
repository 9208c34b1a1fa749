package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/image"
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
	// asked is when disk figures were asked for first, from when on they are waited for; zero before.
	asked time.Time
}

// evict begins to do something about the thresholds. Each condition is relieved beside the others: a slow disk keeps nobody from
// freeing memory.
func (s *Service) evict(ctx context.Context, due []evict.Threshold, now time.Time) {
	for _, c := range []struct {
		job       job
		condition corev1.NodeConditionType
	}{{jobMemory, corev1.NodeMemoryPressure}, {jobDisk, corev1.NodeDiskPressure}, {jobPID, corev1.NodePIDPressure}} {
		other := func(t evict.Threshold) bool { return t.Signal.Condition() != c.condition }
		mine := slices.DeleteFunc(slices.Clone(due), other)
		if s.mayRelieve(c.job, mine, now) {
			s.start(ctx, c.job, s.relieve(c.job, mine, now))
		}
	}
}

// mayRelieve tells whether something is to be begun about a condition.
func (s *Service) mayRelieve(j job, due []evict.Threshold, now time.Time) bool {
	p := &s.passes[j]
	if p.since.IsZero() {
		p.since = now
	}
	hard := func(t evict.Threshold) bool { return t.Hard }
	reclaims := func(t evict.Threshold) bool { return evict.Reclaims(t.Signal, s.fs.Load().layout) != evict.Reclaim{} }
	switch {
	case len(due) == 0:
		p.rest, p.asked, p.since = time.Time{}, time.Time{}, time.Time{}
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
			all = append(all, evict.Candidate{Pod: p.Pod, Static: p.Static()})
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
func (s *Service) relieve(j job, due []evict.Threshold, now time.Time) work {
	p := &s.passes[j]
	r := relief{service: s, snapshot: s.snapshot(now), since: p.since, asked: p.asked}
	return func(ctx context.Context) func() {
		err := r.run(ctx, due)
		return func() {
			s.report.problems.Set(problems[j], err)
			s.keepRecords(r.learned)
			now := time.Now()
			p.asked = r.asked
			switch {
			case r.evicted != "":
				p.awaited, p.until, p.soft = r.evicted, s.onEvicted(r.evicted, r.grace, now), r.soft
			case !r.relieved:
				p.rest = now.Add(restPeriod)
			}
		}
	}
}

// relief is one pass, beside the loop.
type relief struct {
	service *Service
	snapshot
	// since is when the node was found to be short; asked is the pass's.
	since, asked time.Time

	evicted  string
	grace    int64
	soft     bool
	relieved bool
	learned  map[string]image.Record
}

func (r *relief) run(ctx context.Context, due []evict.Threshold) error {
	var errs []error
	told := map[corev1.ResourceName]bool{}
	quick, cancel := context.WithTimeoutCause(ctx, reclaimTimeout, fmt.Errorf("reclaiming disk space has taken %s, so pods are evicted", reclaimTimeout))
	defer cancel()
	for i, t := range due {
		if i > 0 && r.over(t) {
			continue // what was done for another has relieved it too
		}
		if name := t.Signal.Resource(); !told[name] {
			told[name] = true
			r.service.report.node(corev1.EventTypeWarning, reasonThresholdMet, fmt.Sprintf("Attempting to reclaim %s", name))
		}
		if r.waiting == "" && quick.Err() == nil {
			tried, err := r.reclaim(quick, t)
			errs = append(errs, err)
			if tried && r.over(t) {
				r.relieved = true
				continue
			}
		}
		errs = append(errs, r.evictFor(ctx, t))
		if r.evicted != "" || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// over reads the signal anew and tells whether its threshold is relieved. What can't be read is as it was.
func (r *relief) over(t evict.Threshold) bool {
	s := r.service
	var obs evict.Observations // of errors the loop tells
	if t.Signal.Disk() {
		obs, _ = s.Sensor.Disks(time.Now(), s.fs.Load().Filesystems)
	} else {
		obs, _ = s.Sensor.Read(time.Now())
	}
	if o, ok := obs[t.Signal]; ok {
		r.obs[t.Signal] = o
	}
	return !evict.Met(t, r.obs[t.Signal], true)
}

// reclaim frees disk space without evicting anybody, where there may be some.
func (r *relief) reclaim(ctx context.Context, t evict.Threshold) (tried bool, err error) {
	s := r.service
	what := evict.Reclaims(t.Signal, s.fs.Load().layout)
	var errs []error
	removed, freed := false, time.Time{}
	if what.Containers {
		c, err := take(ctx, s.env.Bus, s.Containers, r.known)
		if err == nil {
			removed, err = s.removeDead(ctx, c, true)
		}
		freed = time.Now().Add(freedTimeout)
		errs = append(errs, err)
	}
	if what.Images {
		r.learned, err = s.removeImages(ctx, r.known, r.records, true)
		errs = append(errs, err)
	}
	if removed {
		r.awaitFreed(ctx, t, freed)
	}
	return what.Containers || what.Images, errors.Join(errs...)
}

// awaitFreed waits until then for the space of containers that were removed: containerd frees it some seconds later.
func (r *relief) awaitFreed(ctx context.Context, t evict.Threshold, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for !r.over(t) {
		select {
		case <-time.After(freedEvery):
		case <-ctx.Done():
			return
		}
	}
}

// figures are the pods with what they use, of after the node became short: by earlier ones somebody else had used most. What takes its
// time, such as a large directory, is waited for: those who have it aren't ranked as if they had nothing. What was counted meanwhile isn't
// counted again.
func (r *relief) figures(ctx context.Context, t evict.Threshold, pods []evict.Candidate) ([]evict.Candidate, error) {
	s := r.service
	now, since := time.Now(), r.since
	if r.asked.IsZero() {
		r.asked = now
	}
	if oldest := now.Add(-diskMaxAge); since.Before(oldest) {
		since = oldest
	}
	for {
		stats, err := s.summary(ctx, t, since)
		pods := withStats(pods, stats)
		waited, enough := time.Since(r.asked), since
		if waited >= newerTimeout {
			enough = time.Time{}
		}
		incomplete := func(c evict.Candidate) bool { return !evict.Complete(t.Signal, s.fs.Load().layout, c, enough) }
		if err != nil || waited >= figuresTimeout || !slices.ContainsFunc(pods, incomplete) {
			return pods, err
		}
		select {
		case <-time.After(readEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// evictFor evicts the first pod of the ranking that may be.
func (r *relief) evictFor(ctx context.Context, t evict.Threshold) error {
	s := r.service
	// While space was reclaimed pods have come and gone.
	snap, err := s.look(ctx)
	if err != nil || len(snap.pods) == 0 {
		return err
	}
	pods, err := r.figures(ctx, t, snap.pods)
	if err != nil {
		return err
	}
	if r.over(t) {
		r.relieved = true
		return nil
	}
	o := r.obs[t.Signal]
	var errs []error
	for i, c := range evict.Rank(t.Signal, s.fs.Load().layout, pods) {
		if c.Critical() {
			s.report.decided(aboutPod(topic.DeedKeep, c.Pod, fmt.Sprintf("next to be evicted for %s, and it is critical", t)))
			continue
		}
		message, annotations := evict.Message(t, o, c.Candidate)
		grace := evict.GracePeriod(t, s.settings.maxGrace, c.Pod)
		err := s.end(ctx, ending{
			pod: c.Pod, signal: t.Signal, message: message, annotations: annotations, disruption: evict.Disruption, grace: grace, reason: c.Why(t, o, i),
		})
		if errors.Is(err, errEnded) {
			continue
		}
		if err != nil {
			// podsync may have no such pod any more; where it doesn't answer the next would fare no better.
			errs = append(errs, err)
			if !refused(err) {
				break
			}
			continue
		}
		s.metrics.statsAge.WithLabelValues(string(t.Signal)).Observe(time.Since(o.At).Seconds())
		r.evicted, r.grace, r.soft = string(c.Pod.UID), grace, !t.Hard
		break
	}
	return errors.Join(errs...)
}

// refused tells whether podsync has answered, if only that it won't.
func refused(err error) bool {
	return !errors.Is(err, bus.ErrNoResponder) && !errors.Is(err, bus.ErrDisconnected) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, errNoAnswer)
}

// summary is who uses what, read for the threshold; of filesystems since that moment.
func (s *Service) summary(ctx context.Context, t evict.Threshold, since time.Time) (statsv1alpha1.Summary, error) {
	req := topic.SummaryRequest{OnlyCPUAndMemory: !t.Signal.Disk(), Processes: t.Signal == evict.PIDAvailable, MaxAge: time.Second}
	if t.Signal.Disk() {
		req.MaxAge = max(time.Since(since), time.Millisecond)
	}
	summary, err := call(ctx, s.env.Bus, topic.StatsSummary, req)
	if err != nil {
		err = fmt.Errorf("%s is met, and nobody knows who uses what: %w", t, err)
	}
	return summary, err
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

// withStats adds what is known of each pod's usage.
func withStats(pods []evict.Candidate, summary statsv1alpha1.Summary) []evict.Candidate {
	byUID := map[string]*statsv1alpha1.PodStats{}
	for i := range summary.Pods {
		byUID[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
	}
	out := slices.Clone(pods)
	for i := range out {
		out[i].Stats = byUID[string(out[i].Pod.UID)]
	}
	return out
}
