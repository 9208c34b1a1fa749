package worker

import (
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// stated is what a worker has put on the bus of its pod.
type stated struct {
	topic.Pod
	// of is the object whose admitted form Pod.Pod is.
	of *corev1.Pod
	// version is the resource version of the last pod.object.
	version string
	// started is StartedBefore.
	started []string
}

// statePod states the pod on the bus if that says anything new. Each message wakes most of the crew.
func (b *publisher) statePod() {
	state, object := b.podUpdate(), b.object()
	// Objects are replaced, never changed: where their pointers are the same nothing below them is compared.
	changed := !reflect.DeepEqual(state, b.stated.Pod)
	b.stated.Pod, b.stated.of = state, b.state.Pod
	if object != nil {
		b.stated.version = object.ResourceVersion
	}
	switch {
	case changed:
		b.report.Pod(&state, object)
	case object != nil:
		b.report.Pod(nil, object)
	}
}

// podUpdate is the payload of pod.update.
func (b *publisher) podUpdate() topic.Pod {
	s := b.state
	t := topic.Pod{
		Pod: b.admitted(), Source: s.Source, Lifecycle: s.ending.lifecycle,
		Released:  s.ending.lifecycle == topic.Terminated && s.ending.released,
		FirstSeen: s.FirstSeen, BackoffBase: s.containers.backoffBases(), StartedBefore: b.stated.started, Resize: s.resize,
		Allocates: s.Allocates && !s.roomless(), Removed: s.ending.removed,
	}
	for c := range podspec.InitAndMain(&s.Pod.Spec) {
		if known := s.containers[c.Name]; c.Lifecycle != nil && c.Lifecycle.PostStart != nil && known != nil && known.busy {
			t.PostStart = append(t.PostStart, c.Name)
		}
	}
	if s.Reject != nil {
		t.Refused = s.Reject.Reason
	}
	t.Sandboxed = t.Allocates && sandboxed(s.view.obs)
	if s.ending.stop != nil {
		if t.Lifecycle == topic.Syncing {
			t.Lifecycle = topic.Terminating
		}
		if r := s.Restored; r != nil && r.Lifecycle == topic.Terminated && !s.view.alive() { // it never goes backwards
			t.Lifecycle = topic.Terminated
		}
		seconds := int64(s.ending.stop.grace / time.Second)
		end := s.ending.stop.since.Add(s.ending.stop.grace)
		t.GracePeriodSeconds, t.Deadline = &seconds, &end
	}
	return t
}

// sandboxed reports whether the pod has a sandbox that is up, or containers that outlive theirs. A runtime that has
// lost its files in a reboot says nothing of either.
func sandboxed(obs topic.PodObservation) bool {
	return slices.ContainsFunc(obs.Sandboxes, func(b topic.Sandbox) bool { return b.Ready }) ||
		slices.ContainsFunc(obs.Containers, func(c topic.Container) bool { return c.State == topic.ContainerRunning })
}

// admitted is the pod without its status, but for the names of its claims. If only the status was written since, it
// stays the same object, with its older resource version.
func (b *publisher) admitted() *corev1.Pod {
	if b.stated.of == b.state.Pod {
		return b.stated.Pod.Pod
	}
	pod := *b.state.Pod
	pod.Status = corev1.PodStatus{
		ResourceClaimStatuses:       pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}
	pod.ManagedFields = nil
	if last := b.stated.Pod.Pod; last != nil {
		version := pod.ResourceVersion
		pod.ResourceVersion = last.ResourceVersion
		if equality.Semantic.DeepEqual(&pod, last) {
			return last
		}
		pod.ResourceVersion = version
	}
	return &pod
}

// object is what the API server has of the pod's status; nil if that isn't new, or comes from the bus itself.
func (b *publisher) object() *topic.APIPod {
	fromBus := b.state.Restored != nil && b.state.Pod == b.state.Restored.Pod
	if b.state.Source != topic.SourceAPI || fromBus || b.state.Pod.ResourceVersion == b.stated.version {
		return nil
	}
	return &topic.APIPod{
		Ref: topic.RefOf(b.state.Pod), ResourceVersion: b.state.Pod.ResourceVersion, Status: b.state.Pod.Status,
	}
}

// startedBefore are the IDs of the pod's containers whose startup probe has succeeded, as its status says.
func startedBefore(pod *corev1.Pod) []string {
	probed := map[string]bool{}
	for c := range podspec.Containers(&pod.Spec) {
		probed[c.Name] = c.StartupProbe != nil
	}
	var ids []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && probed[s.Name] && s.Started != nil && *s.Started {
			ids = append(ids, id)
		}
	}
	return ids
}
