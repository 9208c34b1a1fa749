package worker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/services/podsync/internal/plan"
)

// patience is how long a pod that ends waits for a complete reading: what is damaged can't be inspected ever again, and mustn't
// keep the pod for ever.
const patience = time.Minute

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
	w.measure(*obs)
	taken := len(obs.Errors) == 0 || w.resigned()
	if !taken && !w.obs.At.IsZero() {
		return // what couldn't be inspected looks as if it had changed; pleg reads the pod again
	}
	w.obs = *obs
	if taken && obs.NewerThan(w.unseen) {
		w.unseen = topic.PodObservation{}
	}
	w.seedBackoff()
	w.forget()
	w.readMessages()
}

// measure keeps since when readings are incomplete.
func (w *Worker) measure(obs topic.PodObservation) {
	switch {
	case len(obs.Errors) == 0:
		w.partial = time.Time{}
	case w.partial.IsZero():
		w.partial = time.Now()
	}
}

// resigned tells whether the pod ends by incomplete readings, as there are no others. One that runs waits on, as it does with
// the kubelet: a container that is taken for ended might be started twice.
func (w *Worker) resigned() bool {
	return w.stop != nil && !w.partial.IsZero() && time.Since(w.partial) >= patience
}

// certain tells whether the pod is known as its last deed has left it, or as well as it ever will be.
func (w *Worker) certain() bool {
	return w.unseen.At.IsZero() && (len(w.obs.Errors) == 0 || w.resigned())
}

// note has the pod read again after a deed whose effect couldn't be read. What was to be stopped and isn't shown so is stopped
// again, and so needn't be seen.
func (w *Worker) note(r result) {
	a := r.action
	if a.Kind == plan.EnsureImage || a.Kind == plan.ReleaseNode {
		return // they read nothing
	}
	missing := r.Obs == nil || len(r.Obs.Errors) > 0
	w.doubt = w.doubt || missing
	if r.Obs == nil || missing && (a.Starts() || a.Kind == plan.RemoveContainer) {
		w.unseen = topic.PodObservation{At: time.Now(), Uptime: observe.Uptime()}
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
			if c := &w.obs.Containers[i]; c.ID == a.ID && (c.State == topic.ContainerRunning || c.State == topic.ContainerUnknown) {
				return fmt.Errorf("the runtime says that the container is stopped, and still shows it %s", c.State)
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
