package worker

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// idle is how long a worker sleeps when only news can change its plan.
const idle = time.Hour

// step plans, begins actions, and reports. It returns how long to sleep if there is no news.
func (w *Worker) step(ctx context.Context) time.Duration {
	now := time.Now()
	w.triggers(now)
	p := w.state.plan(w.actions.failures, now)
	if p.Complete && w.state.ending.stop == nil {
		w.beginStop(&stop{since: now, grace: plan.PodGrace(w.state.Pod), killing: stopping})
		p = w.state.plan(w.actions.failures, now)
	}
	ending := w.state.ending.stop != nil
	if ending {
		w.actions.cancel(errStopping, func(f *inflightAction) bool { return f.action.Starts() })
	}
	for _, a := range p.Actions {
		w.begin(ctx, a)
	}
	if w.state.view.dirty {
		w.begin(ctx, plan.Action{Kind: plan.ReadPod})
	}
	for name, count := range p.NewBackoffBase {
		w.state.containers.of(name).beginBackoff(count)
	}
	w.announcer.awaitBackoff(p)
	if ending && p.Stopped && !w.actions.starting() && w.state.view.certain(ending) {
		w.state.ending.halted(p.Released)
		if a, due := w.state.nextOfEnd(); due {
			w.begin(ctx, a)
		}
	}
	if len(w.actions.inflight) == 0 {
		w.rounds.end()
	}
	w.publisher.publish(p, now)
	tellOver(w)
	return sleep(now, p.WakeAt, w.publisher.due(now), w.state.deadline(), w.actions.nextRetry(now), w.state.Room.due(now))
}

// tellOver tells who waits for the pod's end of it: they ask for what it had. Others are to hear of the end before.
func tellOver(w *Worker) {
	if w.state.ending.lifecycle == topic.Terminated && !w.Over() {
		close(w.over)
	}
}

// sleep is the time until the first of the moments; zero ones are never.
func sleep(now time.Time, moments ...time.Time) time.Duration {
	wake := now.Add(idle)
	for _, t := range moments {
		wake = earlier(wake, t)
	}
	return max(wake.Sub(now), time.Millisecond)
}

// begin has the action done if its time has come.
func (w *Worker) begin(ctx context.Context, a plan.Action) {
	ending := w.state.ending.stop != nil
	if !w.actions.free(a) || ending && a.Starts() || w.state.view.blocks(a) {
		return
	}
	if (a.Kind == plan.CreateSandbox || a.Kind == plan.ResizePod || a.Reason == plan.ForResize) &&
		!w.state.Room.due(time.Now()).IsZero() {
		return
	}
	if needsNetwork(w.state.Pod, a) {
		problem := w.state.Node.NetworkProblem()
		w.announcer.awaitNetwork(problem)
		if problem != "" {
			return
		}
	}
	w.rounds.begin(w.state.operation(), ending)
	ctx, cancel := context.WithCancelCause(ctx)
	f := &inflightAction{action: a, pod: w.state.Pod, cancel: cancel}
	w.state.view.began(a)
	w.actions.inflight[a.Key()] = f
	if a.Kind == plan.StartContainer {
		w.state.containers.of(a.Container).busy = true
	}
	if a.Kind == plan.StopContainer {
		w.state.containers.of(a.Container).run(a.ID).Stops(a.Reason)
	}
	s := Snapshot{
		Pod: w.state.Pod, Obs: w.state.view.obs, Volumes: w.state.volumes, Allocation: w.state.allocation,
		Images: w.state.imagesFor(a),
		Turn:   w.state.takeTurn(a, w.actions.tries[a.Key()]),
		Before: w.state.before(), Static: w.state.Source != topic.SourceAPI,
		Stopped: maps.Clone(w.state.stopped), Anew: w.state.takeAnew(a),
	}
	w.background.Go(func() {
		outcome := w.executor.Do(ctx, s, a)
		w.results <- result{f, outcome}
		cancel(nil)
	})
}

// finish takes in an action's outcome.
func (w *Worker) finish(r result) {
	a := r.action
	delete(w.actions.inflight, a.Key())
	if r.Obs != nil {
		w.observe(r.Obs)
	}
	w.state.view.ended(r)
	if r.Err == nil {
		r.Err = w.state.view.ineffective(w.state.Pod, a, w.state.ending.stop != nil)
	}
	switch a.Kind {
	case plan.EnsureImage:
		if name := imageName(r.pod, a.Container); r.Err == nil && name == imageName(w.state.Pod, a.Container) {
			w.state.containers.of(a.Container).image = &ready{name, r.Images}
		}
	case plan.StartContainer:
		c := w.state.containers.of(a.Container)
		c.busy, c.image = false, nil
		w.state.startedSmaller(r)
	case plan.ResizePod:
		w.state.resized(r, w.report)
	case plan.StopSandbox:
		w.state.stopped[a.ID] = r.Err == nil
	case plan.RunPreStop:
		w.state.containers.of(a.Container).run(a.ID).HookRan = r.Err == nil
	case plan.SetCPUs:
		if r.Err == nil {
			w.state.containers.of(a.Container).run(a.ID).Cpuset = a.Cpuset
		}
	case plan.ReleaseNode:
		release(w, r.Err)
	case plan.RemoveSandboxes:
		w.state.ending.gone = r.Err == nil
	}
	w.settle(r)
}

// observe takes in a reading of the runtime.
func (w *Worker) observe(obs *topic.PodObservation) {
	if !w.state.view.take(*obs, w.state.ending.stop != nil) {
		return
	}
	w.state.containers.seedBackoff(w.state.view.obs)
	w.state.forget()
	w.readMessages()
}

// settle keeps or forgets the failure of an action. The plan asks for a failed stop again at once; the back-off holds
// it back, too.
func (w *Worker) settle(r result) {
	switch {
	case r.Err == nil:
		w.actions.succeeded(r.action)
		return
	case brokenOff(r.Err):
		return
	}
	failure, tries := w.actions.failed(r.action, r.Err)
	if (r.action.Kind == plan.StopContainer || r.action.Kind == plan.StopSandbox) && tries >= tellStop {
		w.report.Event(w.state.Pod, "", corev1.EventTypeWarning, "FailedKillPod", "error killing pod: "+r.Err.Error())
	}
	if r.action.Kind == plan.RemoveContainer && tries >= removals {
		w.state.view.last(r.action.ID, r.Err)
	}
	w.log.Warn("step failed, retrying", "step", string(r.action.Kind), "container", r.action.Container,
		"retry_in", time.Until(failure.RetryAt).Round(time.Millisecond), "error", r.Err)
}

// removals is how often the removal of an interrupted container is tried, in some 4 s, before a pod goes on without it.
const removals = 4

// tellStop is the failure in a row from which on Events say that something can't be stopped: the first may be of a
// runtime that is being restarted.
const tellStop = 2

func (w *Worker) update(pod *corev1.Pod, pending *Pending) {
	if w.state.Pod.Generation != pod.Generation || w.state.Source != topic.SourceAPI { // manifests have none
		clear(w.actions.failures) // what failed may be what was mended
	}
	computed := &w.publisher.computed
	if podstatus.Terminal(pod.Status.Phase) && !podstatus.Terminal(computed.Phase) {
		// Somebody else has declared the pod ended, such as the pod garbage collector; a terminal phase is final.
		w.state.Previous, computed.Phase = *pod.Status.DeepCopy(), pod.Status.Phase
	}
	if w.state.beginResize(pod) {
		delete(w.actions.failures, plan.Action{Kind: plan.ResizePod}.Key())
	}
	w.state.Pod, w.state.Pending = pod, pending
	w.state.containers.dropImages(pod)
	w.actions.cancel(errChanged, func(f *inflightAction) bool {
		return f.action.Kind == plan.EnsureImage && imageName(f.pod, f.action.Container) != imageName(pod, f.action.Container)
	})
	if computed.Phase == "" {
		*computed = *pod.Status.DeepCopy()
	}
}
