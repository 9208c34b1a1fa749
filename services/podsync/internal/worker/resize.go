package worker

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/admission/allocation"
)

// Pending is the answer to a pod that asks for other resources than it holds: the reason, message and generation of
// its condition PodResizePending (KEP-1287).
type Pending struct {
	Reason     string
	Message    string
	Generation int64
}

// PendingBefore is what an earlier run has answered to a resize that still waits, as the pod's status says; nil if it
// has not.
func PendingBefore(s *corev1.PodStatus, waits bool) *Pending {
	c := allocation.Stated(s, corev1.PodResizePending)
	if !waits || c == nil {
		return nil
	}
	return &Pending{Reason: c.Reason, Message: c.Message, Generation: c.ObservedGeneration}
}

// begunBefore is a resize that was allocated to the pod and isn't done yet, as its status says; nil if there is none.
// So it may be when the node is taken over from a kubelet, or the bus has lost its state.
func begunBefore(pod *corev1.Pod, status *corev1.PodStatus) *topic.Resize {
	begun := allocation.Stated(status, corev1.PodResizeInProgress)
	if begun == nil {
		return nil
	}
	resize := &topic.Resize{Generation: begun.ObservedGeneration, Before: map[string]corev1.ResourceRequirements{}}
	for _, s := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		wanted := allocation.Of(pod, s.Name)
		_, id, ok := strings.Cut(s.ContainerID, "://")
		if !ok || s.State.Running == nil || s.Resources == nil || wanted == nil {
			continue
		}
		has := s.Resources.DeepCopy()
		maps.DeleteFunc(has.Limits, func(name corev1.ResourceName, _ resource.Quantity) bool {
			_, own := wanted.Limits[name]
			return !own // it is the pod's
		})
		if pod.Spec.Resources != nil || !allocation.SameResources(wanted, has) {
			resize.Before[id] = *has
		}
	}
	return resize
}

// before are the resources of running containers that aren't yet those of the spec, by ID.
func (s *state) before() map[string]corev1.ResourceRequirements {
	if s.resize == nil {
		return nil
	}
	return s.resize.Before
}

// beginResize begins the resize from the pod as it is to next, and reports whether there is one. A container that an
// earlier resize hasn't reached still has the resources from before that.
func (s *state) beginResize(next *corev1.Pod) bool {
	if allocation.Same(s.Pod, next) {
		return false
	}
	before := maps.Clone(s.before())
	if before == nil {
		before = map[string]corev1.ResourceRequirements{}
	}
	whole := s.Pod.Spec.Resources != nil || next.Spec.Resources != nil // a container without limits has those of the pod
	for c := range podspec.InitAndMain(&s.Pod.Spec) {
		cur, wanted := s.view.newest(c.Name), allocation.Of(next, c.Name)
		differs := wanted != nil && !allocation.SameResources(&c.Resources, wanted)
		if differs { // the kubelet keeps its crash back-off by resources too: they may be what was missing
			s.containers.of(c.Name).beginBackoff(restarts(s.view.obs, c.Name))
		}
		if cur == nil || cur.State != topic.ContainerRunning || wanted == nil || !whole && !differs {
			continue
		}
		if _, known := before[cur.ID]; !known {
			before[cur.ID] = c.Resources
		}
	}
	s.resize = &topic.Resize{Generation: next.Generation, Before: before}
	return true
}

// startedSmaller takes note of a container that was created from the resources of before a resize.
func (s *state) startedSmaller(r result) {
	has, wanted, cur := allocation.Of(r.pod, r.action.Container), allocation.Of(s.Pod, r.action.Container),
		s.view.newest(r.action.Container)
	if s.resize == nil || r.Err != nil || has == nil || wanted == nil || cur == nil ||
		allocation.SameResources(has, wanted) {
		return
	}
	next := *s.resize
	next.Before = maps.Clone(next.Before)
	next.Before[cur.ID] = *has
	s.resize = &next
}

// resized takes in the outcome of ResizePod. Resources that were allocated while it ran are for the next one.
func (s *state) resized(r result, report Reporter) {
	if s.resize == nil {
		return
	}
	next := *s.resize
	if r.Err != nil {
		if next.Error != r.Err.Error() {
			next.Error = r.Err.Error()
			s.resize = &next
			report.Event(s.Pod, "", corev1.EventTypeWarning, "ResizeError", allocation.Message("Pod resize error", s.Pod,
				next.Generation, next.Error))
		}
		return
	}
	if allocation.Same(r.pod, s.Pod) {
		s.resize = nil
		report.Event(s.Pod, "", corev1.EventTypeNormal, "ResizeCompleted", allocation.Message("Pod resize completed", s.Pod,
			next.Generation, ""))
		return
	}
	next.Error, next.Before = "", map[string]corev1.ResourceRequirements{}
	for c := range podspec.InitAndMain(&r.pod.Spec) {
		if cur := s.view.newest(c.Name); cur != nil && cur.State == topic.ContainerRunning {
			next.Before[cur.ID] = c.Resources
		}
	}
	s.resize = &next
}

// resizeConditions are those of a resize that waits, and of one that is under way.
func (s *state) resizeConditions() []corev1.PodCondition {
	var list []corev1.PodCondition
	if p := s.Pending; p != nil {
		list = append(list, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: p.Reason, Message: p.Message,
			ObservedGeneration: p.Generation,
		})
	}
	if r := s.resize; r != nil {
		c := corev1.PodCondition{
			Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue,
			ObservedGeneration: r.Generation,
		}
		if r.Error != "" {
			c.Reason, c.Message = corev1.PodReasonError, r.Error
		}
		list = append(list, c)
	}
	return list
}
