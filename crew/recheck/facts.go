package recheck

import (
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync"
)

// defaultBackoff is the longest crash back-off unless the configuration says otherwise (crashLoopBackOff).
const defaultBackoff = 5 * time.Minute

// worker is what podsync's worker of a pod knew, as far as the recording says.
type worker struct {
	*pod
	runtime *runtime
	// longest is the longest crash back-off.
	longest time.Duration
	// ends is when the recording ends.
	ends time.Time
}

// wish is what the pod was to be by its pod.update.
func wish(u topic.Pod) podsync.PlanWish {
	w := podsync.PlanWish{Pod: u.Pod}
	if u.Lifecycle != topic.Syncing && u.Deadline != nil && u.GracePeriodSeconds != nil {
		w.Stop, w.StopMessage = true, "Stopping container"
		w.Grace = time.Duration(*u.GracePeriodSeconds) * time.Second
		w.StopSince = u.Deadline.Add(-w.Grace)
	}
	return w
}

// facts are what a plan for that pod.update could know at a time. Images that aren't known to be there or not count as
// assume says.
func (w *worker) facts(u topic.Pod, t time.Time, assume bool) podsync.PlanFacts {
	f := podsync.PlanFacts{
		VolumesMounted: len(u.Pod.Spec.Volumes) == 0, Containers: map[string]podsync.PlanContainer{},
		Failures: w.failures(u, t), SandboxesStopped: map[string]bool{}, MaxBackoff: w.longest, Resize: u.Resize,
		Hash: labels.ContainerHash,
	}
	if v, ok := w.volumes.last(t); ok {
		f.VolumesMounted = f.VolumesMounted || v.Phase == topic.VolumeMounted
	}
	if u.Allocates {
		a, _ := w.allocations.last(t)
		f.Allocating = a.Phase != topic.Allocated
	}
	for c := range podspec.Containers(&u.Pod.Spec) {
		has, known := w.image(c.Name, c.Image, t)
		f.Containers[c.Name] = podsync.PlanContainer{
			Image: has || !known && assume, Busy: w.busy(c.Name, t), BackoffBase: u.BackoffBase[c.Name],
			Probes: w.verdicts(c.Name, t), Runs: w.runs(c.Name, t),
		}
	}
	for _, s := range w.steps {
		if s.kind() == podsync.ActionStopSandbox && s.id != "" && s.Error == "" && over(s.end, t) {
			f.SandboxesStopped[s.id] = true
		}
	}
	return f
}

// image reports whether the image was ready for the next start of the container, and whether that is known.
func (w *worker) image(container, image string, t time.Time) (has, known bool) {
	var newest time.Time
	for _, s := range w.steps {
		if s.Container != container || !over(s.end, t) || s.end.Before(newest) {
			continue
		}
		switch {
		case s.kind() == podsync.ActionEnsureImage && s.Error == "":
			has, known, newest = s.Image == image, true, s.end
		case s.kind() == podsync.ActionStartContainer:
			has, known, newest = false, true, s.end
		}
	}
	return has, known || w.born()
}

// busy reports whether the container was being started.
func (w *worker) busy(container string, t time.Time) bool {
	return slices.ContainsFunc(w.steps, func(s step) bool {
		return s.kind() == podsync.ActionStartContainer && s.Container == container && s.covers(t) && s.begin.Before(t)
	})
}

// verdicts are those of the container's probes.
func (w *worker) verdicts(container string, t time.Time) map[string]topic.Probe {
	all := map[string]topic.Probe{}
	for key, of := range w.probes {
		if v, ok := of.last(t); ok && key.Container == container {
			all[key.Kind] = v
		}
	}
	return all
}

// runs are what was known of the container's runs.
func (w *worker) runs(container string, t time.Time) map[string]podsync.PlanRun {
	all := map[string]podsync.PlanRun{}
	for _, s := range w.steps {
		if s.Container != container || s.id == "" {
			continue
		}
		of := all[s.id]
		if !s.begin.After(t) {
			of.Stops(s.again)
		}
		of.HookRan = of.HookRan || s.kind() == podsync.ActionRunPreStop && s.Error == "" && over(s.end, t)
		all[s.id] = of
	}
	return all
}

// brokenOff are the causes with which podsync breaks off its own actions. They are no failures.
var brokenOff = []string{
	"the pod must stop", "the grace period was shortened", "the pod asks for another image now", "podsync stops",
	"context canceled",
}

// failures are the actions that had failed and not succeeded since. When a failed action is tried again isn't the
// plan's to decide, so it counts as due when it was tried again.
func (w *worker) failures(u topic.Pod, t time.Time) map[string]podsync.PlanFailure {
	all := map[string]podsync.PlanFailure{}
	for _, s := range w.steps {
		key, seen := failureKey(s)
		if !seen || !over(s.end, t) ||
			slices.ContainsFunc(brokenOff, func(cause string) bool { return strings.Contains(s.Error, cause) }) {
			continue
		}
		before := all[key]
		switch {
		case s.Error != "":
			if of, ok := w.updates.last(s.end); ok && of.Pod.Generation != u.Pod.Generation {
				continue // what failed may be what was mended
			}
			all[key] = podsync.PlanFailure{
				Of: s.kind(), Reason: s.Name, Message: s.Error, RetryAt: w.again(s),
			}
		case s.kind() != podsync.ActionEnsureImage || before.Of != podsync.ActionStartContainer:
			delete(all, key)
		}
	}
	return all
}

// failureKey is the key by which the plan sees the failure of a step; seen is false where it doesn't.
func failureKey(s step) (key string, seen bool) {
	switch s.kind() {
	case podsync.ActionCreateSandbox, podsync.ActionEnsureImage, podsync.ActionStartContainer:
		return s.Container, true
	case podsync.ActionResizePod:
		return s.Name + " ", true
	}
	return "", false
}

// again is when a step was tried again that had failed.
func (w *worker) again(failed step) time.Time {
	next := w.ends.Add(time.Hour)
	key, _ := failureKey(failed)
	for _, s := range w.steps {
		if of, seen := failureKey(s); seen && of == key && s.begin.After(failed.end) && s.begin.Before(next) {
			next = s.begin
		}
	}
	return next
}

// times are when something that the plan knows changed in a period.
func (w *worker) times(from, to time.Time) []time.Time {
	times := w.runtime.times(from, to)
	times = append(times, w.volumes.times(from, to)...)
	times = append(times, w.updates.times(from, to)...)
	times = append(times, w.allocations.times(from, to)...)
	times = append(times, w.runtime.partial.times(from, to)...)
	for _, of := range w.probes {
		times = append(times, of.times(from, to)...)
	}
	for _, s := range w.steps {
		if over(s.end, to) && !s.end.Before(from) {
			times = append(times, s.end)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}
