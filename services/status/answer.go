package status

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
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
			if o := w.served(a.action.UID); o != nil {
				o.doubt()
			}
		}
		return a.err
	}
	switch a.action.verb {
	case doGet, doPatch:
		if o := w.served(a.action.UID); o != nil {
			o.answered(a.pod, a.action)
		}
	case doDelete:
		w.removed(a.action)
	case doCreate:
		uid := string(a.pod.UID)
		w.setMirror(uid, topic.MirrorPod{
			Ref:  topic.Ref{Namespace: a.pod.Namespace, Name: a.pod.Name, UID: uid},
			Hash: a.pod.Annotations[annotationMirror],
		})
		w.mirrors[uid].served.answered(a.pod, a.action)
	}
	w.touch(a.action.key)
	return nil
}

// otherPod tells whether the API server has no pod of that name and UID. A conflict doesn't say so: somebody may have written the
// pod meanwhile. That it finds none to delete says nothing, see kube.Client.DeletePod: it is asked again until podsync's watch of
// the pods tells that the pod is gone.
func otherPod(a answer) bool {
	if a.err != nil {
		return apierrors.IsNotFound(a.err) && a.action.verb != doDelete
	}
	return a.pod != nil && string(a.pod.UID) != a.action.UID
}

// served is what is known of the status of the pod or mirror pod with that UID; nil where there is none.
func (w *world) served(uid string) *served {
	if m := w.mirrors[uid]; m != nil {
		return &m.served
	}
	if p := w.pods[uid]; p != nil {
		return &p.served
	}
	return nil
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

// absent tells failures that meet every request alike. That the server fails on one pod, as where a webhook for its namespace is down,
// says nothing of the others.
func absent(err error) bool {
	return unreachable(err) && !apierrors.IsInternalError(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err)
}
