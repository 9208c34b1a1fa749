package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/image"
)

// snapshot is what work outside the loop takes from it.
type snapshot struct {
	waiting    string
	known      map[string]topic.Pod
	records    map[string]image.Record
	inUse      map[string]bool
	thresholds []evict.Threshold
	obs        evict.Observations
	// freeing is disk space that the runtime may still be freeing.
	freeing evict.Freeing
	pods    []evict.Candidate
	limited []evict.Candidate
	logs    []log
}

// plan answers gc.plan. Where there is no plan, something that it is made from could not be read.
func (s *Service) plan(ctx context.Context, req topic.GCPlanRequest) (topic.GCPlanReply, error) {
	reply, err := s.makePlan(ctx, req)
	if err != nil {
		// Only the text: the kind of an error that another daemon has answered with is about its own call.
		err = bus.WithKind(bus.ErrUnavailable, errors.New(err.Error()))
	}
	return reply, err
}

// makePlan decides by the same functions by which things are removed; nothing is done.
func (s *Service) makePlan(ctx context.Context, req topic.GCPlanRequest) (topic.GCPlanReply, error) {
	snap, err := s.look(ctx)
	if err != nil {
		return topic.GCPlanReply{}, err
	}
	reply := topic.GCPlanReply{Waiting: snap.waiting}
	pressure, err := s.planEviction(ctx, snap)
	if err != nil {
		return reply, err
	}
	reply.Decisions = append(pressure, s.planLogs(snap)...)
	c, err := takeInventory(ctx, s.env.Bus, s.Containers, snap.known)
	if err != nil {
		reply.Waiting = err.Error()
		return reply, nil //nolint:nilerr // what isn't known isn't removed either, so that is the plan
	}
	for _, choice := range s.pick(c, req.Images) {
		reply.Decisions = append(reply.Decisions, choice.Decision)
	}
	dirs, errDirs := s.leftDirs(c)
	links, errLinks := s.leftLinks(c, snap.inUse, c.at)
	if err := errors.Join(errDirs, errLinks); err != nil {
		return reply, err
	}
	reply.Decisions = slices.Concat(reply.Decisions, dirs, links)
	chosen, err := s.planImages(ctx, snap, req.Images)
	reply.Decisions = append(reply.Decisions, chosen...)
	now := time.Now()
	for i := range reply.Decisions {
		reply.Decisions[i].At = now
	}
	return reply, err
}

// look takes a snapshot. The error is the context's cause.
func (s *Service) look(ctx context.Context) (snapshot, error) {
	return loop.Ask(ctx, s.loop, func() snapshot { return s.snapshot(time.Now()) })
}

func (s *Service) snapshot(now time.Time) snapshot {
	return snapshot{
		waiting: s.state.waiting(now), known: maps.Clone(s.state.pods), records: s.records, inUse: logsInUse(s.state.seen),
		thresholds: s.tracker.Thresholds(), obs: maps.Clone(s.obs), freeing: s.passes[jobDisk].freeing,
		pods: s.candidates(now, func(*corev1.Pod) bool { return true }), logs: s.runningLogs(),
		limited: s.candidates(now, func(p *corev1.Pod) bool {
			return s.settings.Load().localLimits && evict.LimitsStorage(p)
		}),
	}
}

// planEviction says how far each threshold is, and who would be evicted for those that are met.
func (s *Service) planEviction(ctx context.Context, snap snapshot) ([]topic.Decision, error) {
	fs := s.fs.Load()
	var out []topic.Decision
	for _, t := range snap.thresholds {
		o, ok := snap.obs[t.Signal]
		if !ok {
			continue
		}
		d := topic.Decision{Action: topic.ActionKeep, Object: t.String(), Reason: t.Figures(o)}
		met, freeing := evict.Met(t, o, false), snap.freeing.Awaited(t, o, time.Now())
		if met && freeing {
			d.Reason += "; " + snap.freeing.String()
		}
		if freeing || !met || t.Signal.Disk() && !fs.known {
			out = append(out, d)
			continue
		}
		r := relief{service: s, snapshot: snap, waits: evict.Waits{}}
		choice, err := r.choose(ctx, evict.Due{Threshold: t}, snap)
		if err != nil {
			return out, err
		}
		if choice.Waits() {
			d.Reason += "; " + choice.Awaited()
		}
		if i := slices.IndexFunc(choice.Order, func(c evict.Ranked) bool { return !c.Critical() }); i >= 0 {
			d = aboutPod(topic.ActionEvict, choice.Order[i].Pod, choice.Order[i].Why(t, o, 0)+unless(t, snap, fs.layout))
		}
		out = append(out, d)
	}
	if !fs.known {
		return out, nil
	}
	over, err := s.excesses(ctx, snap.limited)
	for _, c := range over {
		if !c.Critical() {
			out = append(out, aboutPod(topic.ActionEvict, c.Pod, c.message))
		}
	}
	return out, err
}

// unless says what may keep a pod that would be evicted for the threshold.
func unless(t evict.Threshold, snap snapshot, layout evict.Layout) (text string) {
	if t.Grace > 0 {
		text = fmt.Sprintf("; once the threshold has been met for %s", t.Grace)
	}
	if snap.waiting == "" && evict.Reclaims(t.Signal, layout) != (evict.Reclaim{}) {
		text += "; dead containers and unused images go first, and it stays if that is enough"
	}
	return text
}

func (s *Service) planLogs(snap snapshot) []topic.Decision {
	var out []topic.Decision
	set := s.settings.Load()
	for _, l := range snap.logs {
		if steps, size, err := set.rotator(s.Logs).Look(l.path, time.Now()); err == nil && steps.Rotate != "" {
			out = append(out, topic.Decision{
				Action: topic.ActionRotateLog, Object: l.path, Pod: &l.pod,
				Reason: set.whyRotate(size),
			})
		}
	}
	return out
}

func (s *Service) planImages(ctx context.Context, snap snapshot, squeeze bool) ([]topic.Decision, error) {
	if !s.fs.Load().known {
		return nil, nil
	}
	in, err := s.imageInput(ctx, snap.known, snap.records)
	if err != nil {
		return nil, err
	}
	in.Squeeze = squeeze
	var out []topic.Decision
	for _, c := range image.Pick(in) {
		out = append(out, c.Decision)
	}
	return out, nil
}
