package worker

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// allocate takes what the resource daemon says of the pod. A pod that needs its word keeps the last one; for another
// one nothing said means that it has nothing for itself, as after a change of the policy.
func allocate(w *Worker, a topic.Allocation) {
	if a.Phase != "" || !w.state.Allocates {
		w.state.allocation = a
	}
}

// refuse fails a pod that can't have what it asks for. One that runs keeps what it has: the refusal holds up the next
// starts of its containers only, and fails it when none runs any more, as after a reboot. A refusal is final.
func refuse(w *Worker) {
	s, a := w.state, w.state.allocation
	if a.Phase != topic.AllocationRefused || s.Reject != nil || s.ending.stop != nil || s.view.alive() ||
		w.actions.starting() {
		return
	}
	w.log.Warn("pod is not admitted", "reason", a.Reason, "message", a.Message)
	w.report.Event(s.Pod, "", corev1.EventTypeWarning, a.Reason, a.Message)
	s.Metrics.Rejected(a.Reason)
	s.Reject = &Failed{Reason: a.Reason, Message: "Pod was rejected: " + a.Message}
}

// alive reports whether a container of the pod runs, or may run for all that is known.
func (v *view) alive() bool {
	return !v.certain(false) || plan.Runs(v.obs)
}

// allocating reports whether nothing may be created yet, because the pod waits for what it is to have for itself.
func (s *state) allocating() bool { return s.Allocates && s.allocation.Phase != topic.Allocated }

// allocationUnknown reports whether it isn't known yet what the pod has for itself.
func (s *state) allocationUnknown() bool { return s.Allocates && s.allocation.Phase == "" }

// roomless reports whether the pods that end for this one still have what it is to get. Who allocates would refuse it.
// One that ends itself waits for none.
func (s *state) roomless() bool {
	return s.ending.stop == nil && len(s.view.obs.Sandboxes) == 0 && !s.Room.due(time.Now()).IsZero()
}

// allocatingWhy is why it waits, for its users.
func (s *state) allocatingWhy() string {
	switch {
	case !s.allocating():
		return ""
	case s.roomless():
		return "waiting for the pods to end that make room for it"
	case s.allocationUnknown():
		return "waiting for its devices, CPUs or claims to be allocated (pod.allocation, by kubelot-resource)"
	}
	return s.allocation.Message
}

// holdsClaims reports whether the pod's claims of devices aren't given back yet.
func (s *state) holdsClaims() bool {
	return (s.allocation.Claims || s.Allocates && hasClaims(s.Pod)) && s.allocation.Phase != topic.AllocationReleased
}

// hasClaims reports whether the pod has claims of devices, of its own or for its extended resources.
func hasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// containerFacts are what the plan is to know of the containers.
func (s *state) containerFacts() map[string]plan.ContainerFacts {
	all, shared := s.containers.facts(), plan.Cpuset{}
	if s.Shared != nil {
		shared = s.Shared()
	}
	// As long as it isn't known which containers have CPUs of their own, all stay where they are.
	if s.allocationUnknown() || shared == (plan.Cpuset{}) && len(s.allocation.Containers) == 0 {
		return all
	}
	for i := range s.view.obs.Containers {
		name := s.view.obs.Containers[i].Name
		f := all[name]
		own := s.allocation.Containers[name]
		f.CPUs = criconfig.CPUs(own, shared.CPUs)
		f.MemoryNodes = cmp.Or(own.MemoryNodes, shared.MemoryNodes)
		all[name] = f
	}
	return all
}
