package worker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// patience is how long a pod that ends waits for a complete reading. A damaged container may never be inspected again,
// and must not keep the pod forever.
const patience = time.Minute

// view is the pod as the runtime has it, and how well that is known. There is one word for each state:
//
//	dirty     the reading at hand may be out of date: the pod is to be read again
//	unseen    an action has ended, and no reading has shown its effect yet
//	partial   the last reading is incomplete: some object can't be inspected
//	resigned  the pod ends by partial readings, because there has been no complete one for a while
//	certain   the reading shows the pod as its last action left it, or no better reading will come
//
// The first three are fields that only the methods below change. The others follow from them. The words for readings
// alone (complete, partial, ahead) are defined in package observe, and pleg uses them too.
type view struct {
	obs     topic.PodObservation
	dirty   bool
	unseen  topic.PodObservation // when that action ended; without a time if there is none
	partial time.Time            // since when; zero if the last reading was complete
	// lasting are the interrupted containers that can't be removed, and why; see last.
	lasting map[string]error
}

func newView(obs topic.PodObservation) view {
	v := view{obs: obs}
	v.measure(obs)
	v.dirty = !obs.Complete()
	return v
}

// take takes a reading unless it is partial, or older than the one at hand. It reports whether it did. An older reading
// that is ahead makes the pod dirty: a reading takes time, and the one that began first may end last.
func (v *view) take(obs topic.PodObservation, ending bool) bool {
	if !obs.NewerThan(v.obs) {
		v.dirty = v.dirty || observe.Ahead(obs, v.obs)
		return false
	}
	v.measure(obs)
	suffices := obs.Complete() || v.resigned(ending)
	if !suffices && !v.obs.At.IsZero() {
		return false // what couldn't be inspected looks as if it had changed; pleg reads the pod again
	}
	v.obs = obs
	for id, err := range v.lasting {
		v.showLasting(id, err)
	}
	if suffices && obs.NewerThan(v.unseen) {
		v.unseen = topic.PodObservation{}
	}
	return true
}

// last notes that an interrupted container can't be removed. containerd may have failed to undo an interrupted start,
// and then refuses the removal until it is restarted. From now on the container counts as a failed run, as it does with
// the kubelet, so that the next one can be started.
func (v *view) last(id string, err error) {
	if v.lasting == nil {
		v.lasting = map[string]error{}
	}
	v.lasting[id] = err
	v.showLasting(id, err)
}

// showLasting makes the reading at hand show the container as failed. It changes a copy, because others have the
// reading too.
func (v *view) showLasting(id string, err error) {
	i := slices.IndexFunc(v.obs.Containers, func(c topic.Container) bool { return c.ID == id })
	if i < 0 {
		delete(v.lasting, id)
		return
	}
	if !plan.Interrupted(&v.obs.Containers[i]) {
		return
	}
	v.obs.Containers = slices.Clone(v.obs.Containers)
	v.obs.Containers[i].Message += fmt.Sprintf(" (and it can't be removed: %v)", err)
}

// vanished notes that the runtime had nothing of the pod. The next reading shows whether that is still true.
func (v *view) vanished() {
	v.dirty = v.dirty || len(v.obs.Sandboxes)+len(v.obs.Containers) > 0
}

// began notes that an action begins. Once a reading is under way the pod is no longer dirty.
func (v *view) began(a plan.Action) {
	v.dirty = v.dirty && a.Kind != plan.ReadPod
}

// ended notes that an action has ended. If its effect couldn't be read, the pod is dirty and the effect is unseen. The
// effect of a stop needn't be seen: a container that the next reading shows as running is stopped again.
func (v *view) ended(r result) {
	a := r.action
	if a.Kind == plan.EnsureImage || a.Kind == plan.ReleaseNode {
		return // they read nothing
	}
	missing := r.Obs == nil || !r.Obs.Complete()
	v.dirty = v.dirty || missing
	if r.Obs == nil || missing && (a.Starts() || a.Kind == plan.RemoveContainer) {
		v.unseen = observe.Now()
	}
}

// measure records since when readings have been partial.
func (v *view) measure(obs topic.PodObservation) {
	switch {
	case obs.Complete():
		v.partial = time.Time{}
	case v.partial.IsZero():
		v.partial = time.Now()
	}
}

// resigned reports whether partial readings have to suffice. A pod that runs waits on, as it does with the kubelet: a
// container that wrongly counts as ended might be started twice.
func (v *view) resigned(ending bool) bool {
	return ending && !v.partial.IsZero() && time.Since(v.partial) >= patience
}

// certain reports whether the pod's end may be concluded from the reading at hand.
func (v *view) certain(ending bool) bool {
	return v.unseen.At.IsZero() && (v.obs.Complete() || v.resigned(ending))
}

// blocks reports whether the action must wait as long as an effect is unseen: it would build on what isn't known. A
// container can be stopped nevertheless, or one that can't be inspected would keep the others of its pod from their
// end.
func (v *view) blocks(a plan.Action) bool {
	switch a.Kind {
	case plan.CreateSandbox, plan.StartContainer, plan.StopSandbox, plan.RemoveContainer, plan.RemoveSandboxes:
		return !v.unseen.At.IsZero()
	}
	return false
}

// newest is the newest container of the name; nil if there is none.
func (v *view) newest(name string) *topic.Container {
	for i := range v.obs.Containers {
		if v.obs.Containers[i].Name == name {
			return &v.obs.Containers[i]
		}
	}
	return nil
}

// ineffective is an error where an action has succeeded and the runtime doesn't show it: done again at once it would
// spin.
func (v *view) ineffective(pod *corev1.Pod, a plan.Action, ending bool) error {
	switch a.Kind {
	case plan.StopContainer:
		for i := range v.obs.Containers {
			if c := &v.obs.Containers[i]; c.ID == a.ID && (c.State == topic.ContainerRunning ||
				c.State == topic.ContainerUnknown) {
				return fmt.Errorf("the runtime says that the container is stopped, and still shows it %s", c.State)
			}
		}
	case plan.StopSandbox:
		if slices.ContainsFunc(v.obs.Sandboxes, func(s topic.Sandbox) bool { return s.ID == a.ID && s.Ready }) {
			return errors.New("the runtime says that the sandbox is stopped, and still shows it ready")
		}
	case plan.CreateSandbox:
		if !ending && plan.Current(pod, v.obs) == nil {
			return errors.New("the sandbox was created and can't be used: it isn't ready, or has no address")
		}
	}
	return nil
}
