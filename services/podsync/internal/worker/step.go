package worker

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/podstatus"
)

var (
	errShutdown = errors.New("podsync stops")
	errStopping = errors.New("the pod is to stop")
	errShorter  = errors.New("the grace period was shortened")
	errChanged  = errors.New("the pod asks for another image now")
)

// step plans, begins what is to be done, and reports. It returns how long nothing will change by itself.
func (w *Worker) step(ctx context.Context) time.Duration {
	now := time.Now()
	w.triggers(now)
	p := w.plan(now)
	if p.Complete && w.stop == nil {
		w.beginStop(&stop{since: now, grace: plan.PodGrace(w.Pod), killing: "Stopping container"})
		p = w.plan(now)
	}
	if w.stop != nil {
		w.cancelStarts()
	}
	for _, a := range p.Actions {
		w.begin(ctx, a)
	}
	if w.doubt {
		w.begin(ctx, plan.Action{Kind: plan.ReadPod})
	}
	for name, count := range p.NewBackoffBase {
		w.base[name] = count
	}
	w.announceBackoff(p)
	if w.stop != nil && p.Stopped && !w.startsInFlight() && w.certain() {
		w.afterStop(ctx, p)
	}
	if len(w.flight) == 0 {
		w.endRound()
	}
	w.publish(p, now)
	return w.nextWake(p, now)
}

func (w *Worker) plan(now time.Time) plan.Plan {
	d := plan.Desired{Pod: w.Pod}
	if w.stop != nil {
		d.Stop, d.StopSince, d.Grace, d.StopMessage = true, w.stop.since, w.stop.grace, w.stop.killing
	}
	images := make(map[string]bool, len(w.images))
	for name := range w.images {
		images[name] = true
	}
	return plan.Make(d, w.obs, plan.Facts{
		VolumesMounted: w.volumes.Phase == topic.VolumeMounted || len(w.Pod.Spec.Volumes) == 0,
		Images:         images, Failures: w.failures, Busy: w.busy, Probes: w.probes,
		Replaced: w.replaced, SandboxesStopped: w.stopped, HooksRan: w.hooksRan, BackoffBase: w.base, MaxBackoff: w.Node.MaxBackoff(), Hash: labels.ContainerHash,
		Resize: w.resize, Settling: w.Settling != nil && w.Settling(),
	}, now)
}

// mayBegin tells whether it is the action's time.
func (w *Worker) mayBegin(a plan.Action) bool {
	switch {
	case w.flight[a.Key()] != nil, w.stop != nil && a.Starts():
		return false
	case time.Now().Before(w.failures[failureKey(a)].RetryAt):
		return false
	}
	return !w.blind(a) && !w.lacksNetwork(a)
}

// begin has the action done if it may begin.
func (w *Worker) begin(ctx context.Context, a plan.Action) {
	if !w.mayBegin(a) {
		return
	}
	key := a.Key()
	ctx, cancel := context.WithCancelCause(ctx)
	w.beginRound()
	f := &flight{action: a, pod: w.Pod, cancel: cancel}
	w.doubt = w.doubt && a.Kind != plan.ReadPod
	w.flight[key] = f
	if a.Kind == plan.StartContainer {
		w.busy[a.Container] = true
	}
	if a.Kind == plan.StopContainer {
		if a.Reason == "replace" {
			w.replaced[a.ID] = true
		}
	}
	s := Snapshot{
		Pod: w.Pod, Obs: w.obs, Volumes: w.volumes, Images: w.images[a.Container].Images, Turn: w.turn(a),
		Before: w.before(), Static: w.Source != topic.SourceAPI, Stopped: maps.Clone(w.stopped), Going: w.Pod.DeletionTimestamp != nil || w.removed,
	}
	go func() {
		outcome := w.hands.Do(ctx, s, a)
		w.results <- result{f, outcome}
		cancel(nil)
	}()
}

// finish takes in a deed's outcome.
func (w *Worker) finish(r result) {
	delete(w.flight, r.action.Key())
	w.observe(r.Obs)
	w.note(r)
	if r.Err == nil {
		r.Err = w.ineffective(r.action)
	}
	switch r.action.Kind {
	case plan.EnsureImage:
		if name := imageName(r.pod, r.action.Container); r.Err == nil && name == imageName(w.Pod, r.action.Container) {
			w.images[r.action.Container] = ready{name, r.Images}
		}
	case plan.StartContainer:
		delete(w.busy, r.action.Container)
		delete(w.images, r.action.Container)
		w.startedSmaller(r)
	case plan.ResizePod:
		w.resized(r)
	case plan.StopSandbox:
		w.stopped[r.action.ID] = r.Err == nil
	case plan.RunPreStop:
		w.hooksRan[r.action.ID] = r.Err == nil
	case plan.ReleaseNode:
		w.released = r.Err == nil
	case plan.RemoveSandboxes:
		w.gone = r.Err == nil
	}
	w.settle(r)
}

// settle keeps or forgets the failure of a deed's object. What is stopped is tried again at once by the plan, after the same back-off.
func (w *Worker) settle(r result) {
	name, key := failureKey(r.action), r.action.Key()
	if r.Err == nil {
		delete(w.tries, key)
		if r.action.Kind == plan.EnsureImage && w.failures[name].Of == plan.StartContainer {
			return // why the start failed stays told until it succeeds
		}
		delete(w.failures, name)
		return
	}
	if errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, errStopping) || errors.Is(r.Err, errShorter) || errors.Is(r.Err, errChanged) || errors.Is(r.Err, errShutdown) {
		return
	}
	failure := plan.Failure{Reason: string(r.action.Kind), Message: r.Err.Error()}
	var failed *Failed
	if errors.As(r.Err, &failed) {
		failure = plan.Failure{Reason: failed.Reason, Message: failed.Message, RetryAt: failed.RetryAt}
	}
	w.tries[key]++
	if (r.action.Kind == plan.StopContainer || r.action.Kind == plan.StopSandbox) && w.tries[key] >= tellStop {
		w.report.Event(w.Pod, "", corev1.EventTypeWarning, "FailedKillPod", "error killing pod: "+r.Err.Error())
	}
	if failure.RetryAt.IsZero() {
		failure.RetryAt = time.Now().Add(retryAfter(w.tries[key]))
	}
	failure.Of = r.action.Kind
	w.failures[name] = failure
	w.log.Warn("step failed and will be tried again", "step", string(r.action.Kind), "container", r.action.Container, "retry_in", time.Until(failure.RetryAt).Round(time.Millisecond), "error", r.Err)
}

// tellStop is with which failure in a row an Event tells that something can't be stopped: the first may be of a runtime
// that is being restarted.
const tellStop = 2

// failureKey is under which key a deed's failure is kept: a start's under its container, so that
// the plan sees it, any other's under its own.
func failureKey(a plan.Action) string {
	if a.Starts() {
		return a.Container
	}
	return a.Key()
}

// retryAfter doubles from half a second to ten.
func retryAfter(tries int) time.Duration {
	d := 500 * time.Millisecond
	for i := 1; i < tries && d < 10*time.Second; i++ {
		d *= 2
	}
	return min(d, 10*time.Second)
}

func (w *Worker) update(pod *corev1.Pod, pending *Pending) {
	wasGoing := w.Pod.DeletionTimestamp != nil
	if w.Pod.Generation != pod.Generation || w.Source != topic.SourceAPI { // manifests have none
		clear(w.failures) // what failed may be what was mended
	}
	if podstatus.Terminal(pod.Status.Phase) && !podstatus.Terminal(w.status.Phase) {
		// Somebody else has declared the pod ended, such as the pod garbage collector; a terminal phase is final.
		w.Previous, w.status.Phase = *pod.Status.DeepCopy(), pod.Status.Phase
	}
	w.beginResize(pod)
	w.Pod, w.Pending = pod, pending
	w.dropImages()
	if pod.DeletionTimestamp != nil && !wasGoing {
		w.released = false // the pod's directory goes too, now
	}
	if w.status.Phase == "" {
		w.status = *pod.Status.DeepCopy()
	}
}

// dropImages forgets images that the pod doesn't ask for any more, and breaks off their pulls.
func (w *Worker) dropImages() {
	for name, got := range w.images {
		if got.name != imageName(w.Pod, name) {
			delete(w.images, name)
		}
	}
	for _, f := range w.flight {
		if f.action.Kind == plan.EnsureImage && imageName(f.pod, f.action.Container) != imageName(w.Pod, f.action.Container) {
			f.cancel(errChanged)
		}
	}
}

// imageName is the image that the spec names for a container of any kind.
func imageName(pod *corev1.Pod, container string) string {
	if c := plan.Container(pod, container); c != nil {
		return c.Image
	}
	return ""
}
