package worker

import (
	"maps"
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
func (w *Worker) statePod() {
	state, object := w.state(), w.object()
	// Objects are replaced, never changed: where their pointers are the same nothing below them is compared.
	changed := !reflect.DeepEqual(state, w.stated.Pod)
	w.stated.Pod = state
	switch {
	case changed:
		w.report.Pod(&state, object)
	case object != nil:
		w.report.Pod(nil, object)
	}
}

// state is the payload of pod.update.
func (w *Worker) state() topic.Pod {
	t := topic.Pod{
		Pod: w.admitted(), Source: w.Source, Lifecycle: w.lifecycle, Released: w.lifecycle == topic.Terminated && w.released,
		FirstSeen: w.FirstSeen, BackoffBase: maps.Clone(w.base), StartedBefore: w.stated.started, Resize: w.resize,
	}
	if w.stop != nil {
		if t.Lifecycle == topic.Syncing {
			t.Lifecycle = topic.Terminating
		}
		seconds := int64(w.stop.grace / time.Second)
		end := w.stop.since.Add(w.stop.grace)
		t.GracePeriodSeconds, t.Deadline = &seconds, &end
	}
	return t
}

// admitted is the pod without its status. What is no news but for a status that was written stays the same object, with its
// older resource version.
func (w *Worker) admitted() *corev1.Pod {
	if w.stated.of == w.Pod {
		return w.stated.Pod.Pod
	}
	w.stated.of = w.Pod
	pod := *w.Pod
	pod.Status, pod.ManagedFields = corev1.PodStatus{}, nil
	if last := w.stated.Pod.Pod; last != nil {
		version := pod.ResourceVersion
		pod.ResourceVersion = last.ResourceVersion
		if equality.Semantic.DeepEqual(&pod, last) {
			return last
		}
		pod.ResourceVersion = version
	}
	return &pod
}

// object is what the API server has of the pod's status; nil where that isn't new, or comes from the bus itself.
func (w *Worker) object() *topic.APIPod {
	fromBus := w.Restored != nil && w.Pod == w.Restored.Pod
	if w.Source != topic.SourceAPI || fromBus || w.Pod.ResourceVersion == w.stated.version {
		return nil
	}
	w.stated.version = w.Pod.ResourceVersion
	return &topic.APIPod{
		Ref: topic.RefOf(w.Pod), ResourceVersion: w.Pod.ResourceVersion, Status: w.Pod.Status,
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
