package worker

import (
	"errors"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/services/podsync/internal/plan"
)

// observe takes a report of the runtime unless it is incomplete, or older than the one at hand. An older one may know more of an
// object all the same: readings take their time, and the one that began first may end last.
func (w *Worker) observe(obs *topic.PodObservation) {
	if obs == nil {
		return
	}
	if !obs.NewerThan(w.obs) {
		w.doubt = w.doubt || ahead(*obs, w.obs)
		return
	}
	if len(obs.Errors) > 0 && !w.obs.At.IsZero() {
		return // what couldn't be inspected looks as if it had changed; pleg reads the pod again
	}
	w.obs = *obs
	if len(obs.Errors) == 0 && obs.NewerThan(w.unseen) {
		w.unseen = topic.PodObservation{}
	}
	w.seedBackoff()
	w.forget()
	w.readMessages()
}

// note has the pod read again after a deed whose effect couldn't be read.
func (w *Worker) note(r result) {
	reads := r.action.Kind != plan.EnsureImage && r.action.Kind != plan.ReleaseNode
	if reads && (r.Obs == nil || len(r.Obs.Errors) > 0) {
		w.unseen, w.doubt = topic.PodObservation{At: time.Now(), Uptime: observe.Uptime()}, true
	}
}

// blind tells whether the action builds on what isn't known: what the last deed has left. A container can be stopped all the
// same, or one that can't be inspected would keep the others of its pod from their end.
func (w *Worker) blind(a plan.Action) bool {
	switch a.Kind {
	case plan.CreateSandbox, plan.StartContainer, plan.StopSandbox, plan.RemoveContainer, plan.RemoveSandboxes:
		return !w.unseen.At.IsZero()
	}
	return false
}

// progress is how far a container is on its way, which has no way back.
var progress = map[topic.ContainerState]int{topic.ContainerCreated: 1, topic.ContainerRunning: 2, topic.ContainerExited: 3}

// ahead tells whether a reading has an object further on its way than another.
func ahead(reading, than topic.PodObservation) bool {
	for _, c := range reading.Containers {
		if slices.ContainsFunc(than.Containers, func(o topic.Container) bool {
			return o.ID == c.ID && progress[c.State] > progress[o.State]
		}) {
			return true
		}
	}
	for _, s := range reading.Sandboxes {
		if slices.ContainsFunc(than.Sandboxes, func(o topic.Sandbox) bool { return o.ID == s.ID && o.Ready && !s.Ready }) {
			return true
		}
	}
	return false
}

// ineffective is an error where a deed has succeeded and the runtime doesn't show it: done again at once it would spin.
func (w *Worker) ineffective(a plan.Action) error {
	switch a.Kind {
	case plan.StopContainer:
		for i := range w.obs.Containers {
			if c := &w.obs.Containers[i]; c.ID == a.ID && c.State == topic.ContainerRunning {
				return errors.New("the runtime says that the container is stopped, and still shows it running")
			}
		}
	case plan.StopSandbox:
		if slices.ContainsFunc(w.obs.Sandboxes, func(s topic.Sandbox) bool { return s.ID == a.ID && s.Ready }) {
			return errors.New("the runtime says that the sandbox is stopped, and still shows it ready")
		}
	case plan.CreateSandbox:
		if w.stop == nil && plan.Current(w.Pod, w.obs) == nil {
			return errors.New("the sandbox was created and can't be used: it isn't ready, or has no address")
		}
	}
	return nil
}
