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

// pass is where an eviction is.
type pass struct {
	// awaited is the pod that was evicted last, until when it is waited for.
	awaited string
	until   time.Time
	// rest is until when nothing is tried.
	rest time.Time
}

// evict begins to do something about the thresholds, unless that is under way.
func (s *Service) evict(ctx context.Context, due []evict.Threshold, now time.Time) {
	p := &s.pass
	switch {
	case len(due) == 0:
		p.rest = time.Time{}
		return
	case s.schedule.running[jobEvict], len(s.world.unread) > 0, now.Before(p.rest):
		return
	case p.awaited != "" && !s.gone(p.awaited) && now.Before(p.until):
		return
	}
	p.awaited = ""
	s.start(ctx, jobEvict, s.relieve(due, s.obs))
}

// gone tells whether nothing of the pod runs any more.
func (s *Service) gone(uid string) bool {
	p, there := s.world.pods[uid]
	return !there || p.Lifecycle == topic.Terminated
}

// candidates are the pods that have not ended, were not evicted and are accepted by want.
func (s *Service) candidates(want func(*corev1.Pod) bool) []evict.Candidate {
	var all []evict.Candidate
	for _, uid := range slices.Sorted(maps.Keys(s.world.pods)) {
		p := s.world.pods[uid]
		if p.Pod != nil && p.Lifecycle != topic.Terminated && !s.evicted[uid] && want(p.Pod) {
			all = append(all, evict.Candidate{Pod: p.Pod, Static: p.Static()})
		}
	}
	return all
}

// relieve tries one threshold after the other until something could be done.
func (s *Service) relieve(due []evict.Threshold, obs evict.Observations) work {
	pods := s.candidates(func(*corev1.Pod) bool { return true })
	mayDelete := s.world.waiting(time.Now()) == ""
	known, records := maps.Clone(s.world.pods), s.records
	return func(ctx context.Context) func() {
		r := relief{service: s, pods: pods, known: known, records: records, mayDelete: mayDelete}
		err := r.run(ctx, due, obs)
		return func() {
			s.report.problem("eviction", err)
			s.keepRecords(r.learned)
			now := time.Now()
			switch {
			case r.evicted != "":
				s.evicted[r.evicted] = true
				s.pass = pass{awaited: r.evicted, until: now.Add(goneTimeout)}
			case !r.relieved:
				s.pass.rest = now.Add(restPeriod)
			}
		}
	}
}

// relief is one pass, beside the loop.
type relief struct {
	service   *Service
	pods      []evict.Candidate
	known     map[string]topic.Pod
	records   map[string]image.Record
	mayDelete bool

	evicted  string
	relieved bool
	learned  map[string]image.Record
}

func (r *relief) run(ctx context.Context, due []evict.Threshold, obs evict.Observations) error {
	var errs []error
	told := map[corev1.ResourceName]bool{}
	for _, t := range due {
		if name := t.Signal.Resource(); !told[name] {
			told[name] = true
			r.service.report.node(corev1.EventTypeWarning, reasonThresholdMet, fmt.Sprintf("Attempting to reclaim %s", name))
		}
		relieved, latest, err := r.reclaim(ctx, t, obs)
		errs = append(errs, err)
		if relieved {
			r.relieved = true
			continue
		}
		obs = latest
		if err := r.evictFor(ctx, t, obs); err != nil {
			errs = append(errs, err)
		}
		if r.evicted != "" || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// reclaim frees disk space without evicting anybody, and measures again.
func (r *relief) reclaim(ctx context.Context, t evict.Threshold, obs evict.Observations) (relieved bool, latest evict.Observations, err error) {
	s := r.service
	fs := s.fs.Load()
	what := evict.Reclaims(t.Signal, fs.layout)
	if !t.Signal.Disk() || !r.mayDelete || !what.Containers && !what.Images {
		return false, obs, nil
	}
	var errs []error
	if what.Containers {
		c, err := take(ctx, s.env.Bus, s.Containers, r.known)
		if err == nil {
			err = s.removeDead(ctx, c, true)
		}
		errs = append(errs, err)
	}
	if what.Images {
		r.learned, err = s.removeImages(ctx, r.known, r.records, true)
		errs = append(errs, err)
	}
	latest, err = s.Sensor.Read(time.Now(), fs.Filesystems)
	if o, ok := latest[t.Signal]; ok {
		return !evict.Met(t, o, true), latest, errors.Join(errs...)
	}
	return false, obs, errors.Join(append(errs, err)...)
}

// evictFor evicts the first pod of the ranking that may be.
func (r *relief) evictFor(ctx context.Context, t evict.Threshold, obs evict.Observations) error {
	s := r.service
	if len(r.pods) == 0 {
		return nil
	}
	stats, err := s.summary(ctx, t)
	if err != nil {
		return err
	}
	o := obs[t.Signal]
	var errs []error
	for i, c := range evict.Rank(t.Signal, s.fs.Load().layout, withStats(r.pods, stats)) {
		ref := refOf(c.Pod)
		if c.Critical() {
			s.report.decided(topic.Decision{Deed: topic.DeedKeep, Object: name(ref), Pod: &ref, Reason: fmt.Sprintf("next to be evicted for %s, and it is critical", t)})
			continue
		}
		message := evict.Message(t, o, c.Candidate)
		grace := evict.GracePeriod(t, s.settings.maxGrace, c.Pod)
		err := s.end(ctx, ending{ref: ref, signal: t.Signal, message: message, disruption: evict.Disruption, grace: grace, reason: c.Why(t, o, i)})
		if err != nil {
			// podsync may have no such pod any more; where it doesn't answer the next would fare no better.
			errs = append(errs, err)
			if !refused(err) {
				break
			}
			continue
		}
		s.metrics.statsAge.WithLabelValues(string(t.Signal)).Observe(time.Since(o.At).Seconds())
		r.evicted = ref.UID
		return errors.Join(errs...)
	}
	return errors.Join(errs...)
}

// refused tells whether podsync has answered, if only that it won't.
func refused(err error) bool {
	return !errors.Is(err, bus.ErrNoResponder) && !errors.Is(err, bus.ErrDisconnected) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, errNoAnswer)
}

// summary is who uses what, read for the threshold.
func (s *Service) summary(ctx context.Context, t evict.Threshold) (statsv1alpha1.Summary, error) {
	summary, err := call(ctx, s.env.Bus, topic.StatsSummary, topic.SummaryRequest{
		OnlyCPUAndMemory: !t.Signal.Disk(), Processes: t.Signal == evict.PIDAvailable, MaxAge: time.Second,
	})
	if err != nil {
		err = fmt.Errorf("%s is met, and nobody knows who uses what: %w", t, err)
	}
	return summary, err
}

// ending is a pod's eviction.
type ending struct {
	ref        topic.Ref
	signal     evict.Signal
	message    string
	disruption string
	grace      int64
	// reason explains it on the bus.
	reason string
}

// end has podsync end the pod, and tells of it.
func (s *Service) end(ctx context.Context, e ending) error {
	d := topic.Decision{Deed: topic.DeedEvict, Object: name(e.ref), Pod: &e.ref, Reason: e.reason}
	_, err := call(ctx, s.env.Bus, topic.PodEvict, topic.Eviction{
		Ref: e.ref, Reason: evict.Reason, Message: e.message, Disruption: e.disruption, GracePeriodSeconds: &e.grace,
	})
	if err != nil {
		d.Error = err.Error()
		s.report.decided(d)
		return fmt.Errorf("evict pod %s: %w", d.Object, err)
	}
	s.report.decided(d)
	s.report.pod(e.ref, evict.Reason, e.message)
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
