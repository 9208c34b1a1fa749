package podsapi

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// book is what is known of the pods. It has no clock and does no I/O.
type book struct {
	pods     map[string]*entry // by UID
	statuses map[string]*topic.Merged
	// podsSynced and statusesSynced are true once what the topics had retained is known.
	podsSynced, statusesSynced bool
}

// entry is a pod that pod.update has.
type entry struct {
	pod *corev1.Pod
	// status is nil as long as there has been none. It outlives its message: pod.status may be removed before pod.update.
	status *topic.Merged
	// shown is the pod as clients see it, from v1.Pod.Marshal; nil where that has failed. It is never changed.
	shown []byte
}

// event is what watchers are told of a pod. Its bytes are never changed.
type event struct {
	kind podsv1alpha1.EventType
	pod  []byte
}

func newBook() *book {
	return &book{pods: map[string]*entry{}, statuses: map[string]*topic.Merged{}}
}

// complete reports whether the book can be shown.
func (b *book) complete() bool { return b.podsSynced && b.statusesSynced }

// podChanged takes in a change of pod.update. The event is nil if clients see no difference.
func (b *book) podChanged(c bus.Change[topic.Pod]) (*event, error) {
	switch {
	case c.Synced:
		b.podsSynced = true
		return nil, nil
	case c.Deleted:
		return b.drop(c.Key)
	}
	e := b.pods[c.Key]
	if e == nil {
		e = &entry{status: b.statuses[c.Key]}
		b.pods[c.Key] = e
	}
	e.pod = c.Value.Pod
	return e.show()
}

// statusChanged takes in a change of pod.status. The event is nil if clients see no difference.
func (b *book) statusChanged(c bus.Change[topic.Merged]) (*event, error) {
	switch {
	case c.Synced:
		b.statusesSynced = true
		return nil, nil
	case c.Deleted:
		delete(b.statuses, c.Key)
		return nil, nil
	}
	b.statuses[c.Key] = &c.Value
	e := b.pods[c.Key]
	if e == nil {
		return nil, nil
	}
	e.status = &c.Value
	return e.show()
}

// drop takes a pod out.
func (b *book) drop(uid string) (*event, error) {
	e := b.pods[uid]
	delete(b.pods, uid)
	if e == nil || e.shown == nil {
		return nil, nil
	}
	gone := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.pod.Namespace, Name: e.pod.Name, UID: e.pod.UID}}
	pod, err := gone.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the pod %s/%s: %w", e.pod.Namespace, e.pod.Name, err)
	}
	return &event{podsv1alpha1.EventType_DELETED, pod}, nil
}

// show brings what clients see of the pod up to date. After an error they see it as it was.
func (e *entry) show() (*event, error) {
	merged := withStatus(e.pod, e.status)
	pod, err := merged.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the pod %s/%s: %w", e.pod.Namespace, e.pod.Name, err)
	}
	before := e.shown
	e.shown = pod
	switch {
	case before == nil:
		return &event{podsv1alpha1.EventType_ADDED, pod}, nil
	case bytes.Equal(before, pod):
		e.shown = before // one copy of what rests
		return nil, nil
	}
	return &event{podsv1alpha1.EventType_MODIFIED, pod}, nil
}

// withStatus is the pod with its status. It shares all else with pod.
func withStatus(pod *corev1.Pod, m *topic.Merged) corev1.Pod {
	merged := *pod
	if m == nil {
		merged.Status = corev1.PodStatus{Phase: corev1.PodPending}
		return merged
	}
	merged.Status = m.Status
	merged.ResourceVersion = later(pod.ResourceVersion, m.ResourceVersion)
	return merged
}

// later is the later of two resource versions of an object, which are numbers (KEP-5504).
func later(a, b string) string {
	if len(b) > len(a) || len(b) == len(a) && b > a {
		return b
	}
	return a
}

// list are the pods as clients see them, by UID.
func (b *book) list() [][]byte {
	list := make([][]byte, 0, len(b.pods))
	for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
		if e := b.pods[uid]; e.shown != nil {
			list = append(list, e.shown)
		}
	}
	return list
}

// pod is the pod as clients see it; nil if there is none.
func (b *book) pod(uid string) []byte {
	if e := b.pods[uid]; e != nil {
		return e.shown
	}
	return nil
}
