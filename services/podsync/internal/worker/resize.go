package worker

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/alloc"
	"kubelot.dev/services/podsync/internal/plan"
)

// Pending is the answer to a pod that asks for other resources than it holds: the reason, message and generation of
// its condition PodResizePending (KEP-1287).
type Pending struct {
	Reason     string
	Message    string
	Generation int64
}

// before are the resources of running containers that aren't yet those of the spec, by ID.
func (w *Worker) before() map[string]corev1.ResourceRequirements {
	if w.resize == nil {
		return nil
	}
	return w.resize.Before
}

// beginResize begins the resize from the pod as it is to next. Containers that a resize before it hasn't reached have still
// what they had before that.
func (w *Worker) beginResize(next *corev1.Pod) {
	if alloc.Same(w.Pod, next) {
		return
	}
	before := maps.Clone(w.before())
	if before == nil {
		before = map[string]corev1.ResourceRequirements{}
	}
	whole := w.Pod.Spec.Resources != nil || next.Spec.Resources != nil // a container without limits has those of the pod
	alloc.Each(&w.Pod.Spec, func(c *corev1.Container) {
		cur, wanted := w.newest(c.Name), alloc.Of(next, c.Name)
		if cur == nil || cur.State != topic.ContainerRunning || wanted == nil || !whole && alloc.SameResources(&c.Resources, wanted) {
			return
		}
		if _, known := before[cur.ID]; !known {
			before[cur.ID] = c.Resources
		}
	})
	w.resize = &topic.Resize{Generation: next.Generation, Before: before}
	delete(w.failures, plan.Action{Kind: plan.ResizePod}.Key())
}

// startedSmaller takes note of a container that was created from the resources of before a resize.
func (w *Worker) startedSmaller(r result) {
	has, wanted, cur := alloc.Of(r.pod, r.action.Container), alloc.Of(w.Pod, r.action.Container), w.newest(r.action.Container)
	if w.resize == nil || r.Err != nil || has == nil || wanted == nil || cur == nil || alloc.SameResources(has, wanted) {
		return
	}
	next := *w.resize
	next.Before = maps.Clone(next.Before)
	next.Before[cur.ID] = *has
	w.resize = &next
}

// resized takes in the outcome of ResizePod. What was allocated while it ran is done by the next one.
func (w *Worker) resized(r result) {
	if w.resize == nil {
		return
	}
	next := *w.resize
	if r.Err != nil {
		if next.Error != r.Err.Error() {
			next.Error = r.Err.Error()
			w.resize = &next
			w.report.Event(w.Pod, "", corev1.EventTypeWarning, "ResizeError", alloc.Message("Pod resize error", w.Pod, next.Generation, next.Error))
		}
		return
	}
	if alloc.Same(r.pod, w.Pod) {
		w.resize = nil
		w.report.Event(w.Pod, "", corev1.EventTypeNormal, "ResizeCompleted", alloc.Message("Pod resize completed", w.Pod, next.Generation, ""))
		return
	}
	next.Error, next.Before = "", map[string]corev1.ResourceRequirements{}
	alloc.Each(&r.pod.Spec, func(c *corev1.Container) {
		if cur := w.newest(c.Name); cur != nil && cur.State == topic.ContainerRunning {
			next.Before[cur.ID] = c.Resources
		}
	})
	w.resize = &next
}

// newest is the newest container of the name; nil if there is none.
func (w *Worker) newest(name string) *topic.Container {
	for i := range w.obs.Containers {
		if w.obs.Containers[i].Name == name {
			return &w.obs.Containers[i]
		}
	}
	return nil
}

// resizeConditions tell of a resize that waits and of one that is under way.
func (w *Worker) resizeConditions() []corev1.PodCondition {
	var list []corev1.PodCondition
	if p := w.Pending; p != nil {
		list = append(list, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: p.Reason, Message: p.Message, ObservedGeneration: p.Generation,
		})
	}
	if r := w.resize; r != nil {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: r.Generation}
		if r.Error != "" {
			c.Reason, c.Message = corev1.PodReasonError, r.Error
		}
		list = append(list, c)
	}
	return list
}
