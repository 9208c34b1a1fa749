package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/image"
)

// relief is one pass, outside the loop.
type relief struct {
	service *Service
	snapshot
	// waits are the pass's; they end with a choice. frees is true where the snapshot's freeing is of this relief.
	waits evict.Waits
	frees bool

	// awaits is until when figures or space are waited for; zero where they aren't. silent is true where nobody answers.
	awaits  time.Time
	silent  bool
	evicted string
	grace   int64
	soft    bool
	// unsure is that eviction where podsync's answer is missing; again is true where that was so at the beginning.
	unsure   *ending
	again    bool
	relieved bool
	learned  map[string]image.Record
}

func (r *relief) run(ctx context.Context, due []evict.Due) error {
	if r.again {
		return r.askAgain(ctx)
	}
	var errs []error
	told := map[corev1.ResourceName]bool{}
	slow := fmt.Errorf("reclaiming disk space has taken %s, so pods are evicted", reclaimTimeout)
	quick, cancel := context.WithTimeoutCause(ctx, reclaimTimeout, slow)
	defer cancel()
	for i, d := range due {
		t := d.Threshold
		if i > 0 && r.remeasure(t) {
			continue // what was done for another has relieved it too
		}
		waits := r.waits.Has(d) // then the rest has been tried
		if name := t.Signal.Resource(); !told[name] && !waits {
			told[name] = true
			r.service.report.node(corev1.EventTypeWarning, reasonThresholdMet, "Attempting to reclaim "+string(name))
		}
		if r.waiting == "" && quick.Err() == nil && !waits {
			tried, err := r.reclaim(quick, t)
			errs = append(errs, err)
			if tried && r.remeasure(t) {
				r.relieved = true
				continue
			}
		}
		errs = append(errs, r.evictFor(ctx, d))
		if r.evicted != "" || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// remeasure reads the signals of the threshold's kind again and reports whether the threshold is relieved. A signal
// that can't be read stays as it was.
func (r *relief) remeasure(t evict.Threshold) (relieved bool) {
	s := r.service
	var obs evict.Observations // the loop reports errors
	if t.Signal.Disk() {
		obs, _ = s.Sensor.Disks(time.Now(), s.fs.Load().Filesystems)
	} else {
		obs, _ = s.Sensor.Read(time.Now())
	}
	maps.Copy(r.obs, obs)
	return !evict.Met(t, r.obs[t.Signal], true)
}

// reclaim frees disk space without evicting a pod, where that is possible.
func (r *relief) reclaim(ctx context.Context, t evict.Threshold) (tried bool, err error) {
	s := r.service
	what := evict.Reclaims(t.Signal, s.fs.Load().layout)
	var errs []error
	if what.Containers {
		c, err := takeInventory(ctx, s.env.Bus, s.Containers, r.known)
		if err == nil {
			var of []string
			of, _, err = s.removeDead(ctx, c, true)
			others := slices.ContainsFunc(of, func(uid string) bool { return uid != r.freeing.UID })
			if others && !r.freeing.Awaited(t, r.obs[t.Signal], time.Now()) {
				r.freeing, r.frees = evict.Freeing{Until: time.Now().Add(freedTimeout)}, true
			}
		}
		errs = append(errs, err)
	}
	if what.Images {
		r.learned, err = s.removeImages(ctx, r.known, r.records, true)
		errs = append(errs, err)
	}
	return what.Containers || what.Images, errors.Join(errs...)
}

// choose asks stats for the usage of the pods, and chooses by it. Without an answer the last one counts, and the error
// says why there is none.
func (r *relief) choose(ctx context.Context, d evict.Due, now snapshot) (evict.Choice, error) {
	s := r.service
	wait := r.waits.For(d, time.Now())
	left := max(time.Until(wait.Asked.Add(evict.Patience)), lastTimeout)
	asking, cancel := context.WithTimeoutCause(ctx, left, fmt.Errorf("%w within %s", errNoAnswer, left))
	defer cancel()
	stats, err := s.summary(asking, *wait)
	if err == nil {
		wait.Answer = &stats
	}
	r.silent = r.silent || err != nil
	q := evict.Question{Wait: *wait, Now: time.Now(), Observation: now.obs[d.Signal], Layout: s.fs.Load().layout}
	q.Pods = withStats(now.pods, wait.Answer)
	return evict.Choose(q), err
}

// evictFor evicts the first pod that may be evicted, or waits for the figures that say which one that is.
func (r *relief) evictFor(ctx context.Context, d evict.Due) error {
	s, t := r.service, d.Threshold
	// While space was reclaimed pods have come and gone.
	snap, err := s.look(ctx)
	if err != nil || len(snap.pods) == 0 {
		return err
	}
	begins := !r.waits.Has(d)
	if r.awaitSpace(d, begins, snap.freeing) {
		return nil
	}
	choice, err := r.choose(ctx, d, snap)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.remeasure(t):
		r.relieved = true
		return nil
	case choice.Waits():
		r.await(d, choice.Asked.Add(evict.Patience), begins, choice.Awaited())
		return err
	}
	// While figures were waited for pods may have been evicted for their own limits.
	now, gone := s.look(ctx)
	if gone != nil || r.awaitSpace(d, begins, now.freeing) {
		return gone
	}
	choice.Order = slices.DeleteFunc(choice.Order, func(c evict.Ranked) bool {
		return !slices.ContainsFunc(now.pods, func(p evict.Candidate) bool { return p.Pod.UID == c.Pod.UID })
	})
	delete(r.waits, d.String())
	if t.Signal.Disk() && s.settings.Load().localLimits {
		// Pods that break their own limits go before others, as with the kubelet.
		some, failed := s.overLimits(ctx, excessesOf(choice.Pods, choice.Layout))
		if err = errors.Join(err, failed); some {
			r.relieved = failed == nil
			return err
		}
	}
	return errors.Join(err, r.evictFirst(ctx, t, choice))
}

// awaitSpace waits where space may end the shortage that is being freed: by what this relief knows of, or by another.
func (r *relief) awaitSpace(d evict.Due, begins bool, by evict.Freeing) bool {
	for _, f := range []evict.Freeing{r.freeing, by} {
		if f.Awaited(d.Threshold, r.obs[d.Signal], time.Now()) {
			r.waits.ForSpace(d)
			r.await(d, f.Until, begins, f.String())
			return true
		}
	}
	return false
}

// await waits until then, and tells why where the wait begins.
func (r *relief) await(d evict.Due, end time.Time, begins bool, why string) {
	if r.awaits.IsZero() || end.Before(r.awaits) {
		r.awaits = end
	}
	if begins {
		r.service.report.decided(topic.Decision{Action: topic.ActionKeep, Object: d.String(), Reason: why})
	}
}

// evictFirst evicts the first pod of the choice that podsync agrees to evict.
func (r *relief) evictFirst(ctx context.Context, t evict.Threshold, choice evict.Choice) error {
	s, o := r.service, r.obs[t.Signal]
	var errs []error
	for i, c := range choice.Order {
		if c.Critical() {
			why := fmt.Sprintf("next to be evicted for %s, and it is critical", t)
			s.report.decided(aboutPod(topic.ActionKeep, c.Pod, why))
			continue
		}
		message, annotations := evict.Message(t, o, c.Candidate)
		lacking := choice.Lacking(c)
		grace := evict.GracePeriod(t, s.settings.Load().maxGrace, c.Pod)
		e := ending{
			pod: c.Pod, signal: t.Signal, message: message + lacking, annotations: annotations,
			disruption: evict.Disruption, grace: grace, reason: strings.TrimSpace(c.Why(t, o, i) + ". " + lacking),
		}
		err := s.end(ctx, e)
		if errors.Is(err, errEnded) {
			continue
		}
		errs = append(errs, err)
		if refused(err) {
			if errors.Is(err, bus.ErrNotFound) { // it is gone, or podsync was started again
				r.awaits, r.silent = time.Now().Add(againAfter), true
			}
			continue
		}
		if err != nil {
			// podsync may end the pod although its answer is missing, so no other one goes in its place.
			r.unsure = &e
		} else {
			s.metrics.statsAge.WithLabelValues(string(t.Signal)).Observe(time.Since(o.At).Seconds())
		}
		r.evicted, r.grace, r.soft = string(c.Pod.UID), grace, !t.Hard
		r.freeing, r.frees = evict.FreedBy(c, choice.Layout, r.obs, r.freeing, time.Now()), true
		break
	}
	return errors.Join(errs...)
}

// askAgain asks podsync for the eviction whose answer is missing. What it doesn't refuse counts as done.
func (r *relief) askAgain(ctx context.Context) error {
	e, err := r.unsure, r.service.end(ctx, *r.unsure)
	done := err == nil || errors.Is(err, errEnded)
	if done {
		r.evicted, r.grace, err = string(e.pod.UID), e.grace, nil
	}
	if done || refused(err) {
		r.unsure = nil
	}
	return err
}

// refused reports whether podsync has answered that it won't evict this pod. It may still evict another.
func refused(err error) bool {
	return errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrRefused) || errors.Is(err, bus.ErrInvalid)
}

// summary is who uses what, read for the threshold.
func (s *Service) summary(ctx context.Context, w evict.Wait) (statsv1alpha1.Summary, error) {
	notBefore := w.NotBefore()
	summary, err := call(ctx, s.env.Bus, topic.StatsSummary, topic.SummaryRequest{
		OnlyCPUAndMemory: !w.Signal.Disk(), Processes: w.Signal == evict.PIDAvailable,
		MaxAge: max(time.Since(notBefore), 1), NotBefore: notBefore,
	})
	if err != nil {
		err = fmt.Errorf("%s is met, but the usage of pods is unknown: %w", w.Threshold, err)
	}
	return summary, err
}

// withStats adds what is known of each pod's usage.
func withStats(pods []evict.Candidate, summary *statsv1alpha1.Summary) []evict.Candidate {
	out := slices.Clone(pods)
	for i := 0; summary != nil && i < len(out); i++ {
		own := func(p statsv1alpha1.PodStats) bool { return p.PodRef.UID == string(out[i].Pod.UID) }
		if at := slices.IndexFunc(summary.Pods, own); at >= 0 {
			out[i].Stats = &summary.Pods[at]
		}
	}
	return out
}
