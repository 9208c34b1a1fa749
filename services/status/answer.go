package status

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/bus/topic"
)

// answer is what the API server said to an action.
type answer struct {
	action action
	pod    *corev1.Pod
	err    error
}

// settle records an answer. It returns the error if the action is to be tried again.
func (w *world) settle(a answer) error {
	if a.action.verb != doCreate && otherPod(a) {
		w.lost(a.action)
		return nil
	}
	if a.err != nil {
		if !unreachable(a.err) {
			w.rebase(a.action, nil)
		}
		return a.err
	}
	switch a.action.verb {
	case doGet, doPatch:
		w.refuse(a)
		w.rebase(a.action, a.pod)
	case doDelete:
		w.removed(a.action)
	case doCreate:
		uid := string(a.pod.UID)
		w.setMirror(uid, topic.MirrorPod{
			Ref:  topic.Ref{Namespace: a.pod.Namespace, Name: a.pod.Name, UID: uid},
			Hash: a.pod.Annotations[annotationMirror],
		})
		w.mirrors[uid].base = a.pod.Status.DeepCopy()
	}
	w.touch(a.action.key)
	return nil
}

// refuse takes note of a patch that has changed nothing: an API server drops what it doesn't know, and what belongs to features that
// it was told to leave off. Sent again for as long as the status differs it would be sent for ever.
func (w *world) refuse(a answer) {
	p := w.pods[a.action.key]
	if p != nil && a.action.verb == doPatch && equality.Semantic.DeepEqual(*a.action.base, a.pod.Status) {
		p.refused = a.action.patch
	}
}

// otherPod tells whether the API server has no pod of that name and UID. That it finds none to delete says nothing, see
// kube.Client.DeletePod: it is asked again until podsync's watch of the pods tells that the pod is gone.
func otherPod(a answer) bool {
	if a.err != nil {
		return apierrors.IsNotFound(a.err) && a.action.verb != doDelete || apierrors.IsConflict(a.err)
	}
	return a.pod != nil && string(a.pod.UID) != a.action.UID
}

// rebase sets the status that the API server has; a nil pod means that it has to be asked.
func (w *world) rebase(a action, pod *corev1.Pod) {
	var base *corev1.PodStatus
	if pod != nil {
		base = &pod.Status
	}
	if m := w.mirrors[a.UID]; m != nil {
		m.base = base
		return
	}
	if p := w.pods[a.UID]; p != nil {
		p.base = base
		if pod != nil {
			p.version = orderOf(pod.ResourceVersion)
		}
	}
}

// lost records that the API server has no object of that name and UID.
func (w *world) lost(a action) {
	w.dropMirror(a.UID)
	if p := w.pods[a.UID]; p != nil {
		p.gone = true
	}
}

func (w *world) removed(a action) {
	if m := w.mirrors[a.UID]; m != nil {
		m.asked = true
	}
	if p := w.pods[a.UID]; p != nil {
		p.deleted = true
	}
}

// unreachable tells failures that say nothing of the object: the server can't be reached, is busy, or doesn't know this node.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err)
}
