package status

import (
	"errors"
	"slices"

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

// settle records an answer. It returns the error if the action must be tried again.
func (s *state) settle(a answer) error {
	if a.action.verb != doCreate && otherPod(s, a) {
		s.lost(a.action)
		return nil
	}
	if a.err != nil {
		refused(s, a)
		return a.err
	}
	switch a.action.verb {
	case doGet, doPatch:
		if m := s.mirrors[a.action.UID]; m != nil {
			m.doubtful = false
		}
		if o := s.served(a.action.UID); o != nil {
			o.answered(a.pod, a.action)
		}
	case doDelete:
		s.removed(a.action)
	case doCreate:
		uid := string(a.pod.UID)
		made := s.mirrors[uid]
		if made == nil { // else the watch has told of it already, perhaps that it is being deleted
			made = s.mirror(uid, topic.MirrorPod{
				Ref:  topic.Ref{Namespace: a.pod.Namespace, Name: a.pod.Name, UID: uid},
				Hash: a.pod.Annotations[annotationMirror],
			})
		}
		made.served.answered(a.pod, a.action)
	}
	s.touch(a.action.key)
	return nil
}

// refused has the object read before it is written or deleted again, if the answer may follow from what it is.
func refused(s *state, a answer) {
	if o := s.served(a.action.UID); o != nil && !unreachable(a.err) {
		o.doubt()
	}
	if m := s.mirrors[a.action.UID]; m != nil && a.action.verb == doDelete {
		m.doubtful = m.doubtful || apierrors.IsNotFound(a.err) || apierrors.IsConflict(a.err)
	}
}

// otherPod reports whether the API server has no pod of that name and UID. A conflict doesn't say so: somebody may have
// written the pod meanwhile. That it finds none says nothing of a pod that podsync's watch still has: a load balancer
// may say so too, and of one to delete see kube.Client.DeletePod. It is asked again until the watch, or a reading that
// finds another pod, reports that the pod is gone. Of a mirror pod it is true: the watch may never have reported it.
func otherPod(s *state, a answer) bool {
	if a.err != nil {
		return apierrors.IsNotFound(a.err) && a.action.verb != doDelete && !watched(s, a.action.UID)
	}
	return a.pod != nil && string(a.pod.UID) != a.action.UID
}

// watched reports whether podsync's watch has the pod, for all that is known. pod.object doesn't say so: of a pod that
// was deleted by force it stays until its containers and volumes are gone, which may take hours.
func watched(s *state, uid string) bool {
	p := s.pods[uid]
	if p == nil || p.update == nil {
		return false
	}
	return p.update.Lifecycle == topic.Syncing || !s.sources.Ready || slices.Contains(s.sources.Pods, uid)
}

// served is what is known of the status of the pod or mirror pod with that UID; nil where there is none.
func (s *state) served(uid string) *served {
	if m := s.mirrors[uid]; m != nil {
		return &m.served
	}
	if p := s.pods[uid]; p != nil {
		return &p.served
	}
	return nil
}

// lost records that the API server has no object of that name and UID.
func (s *state) lost(a action) {
	s.dropMirror(a.UID)
	if p := s.pods[a.UID]; p != nil {
		p.gone = true
	}
}

// removed records that the API server has accepted a deletion. A mirror pod that podsync's watch has never reported is
// dropped, since the watch may never report its end either. If it is still there, the watch will report it, and it is
// deleted again.
func (s *state) removed(a action) {
	switch m := s.mirrors[a.UID]; {
	case m == nil:
	case m.watched:
		m.asked = true
	default:
		s.dropMirror(a.UID)
	}
	if p := s.pods[a.UID]; p != nil {
		p.deleted = true
	}
}

// unreachable reports whether a failure says nothing of the object: the server can't be reached, is busy, or doesn't
// know this node.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		apierrors.IsUnauthorized(err)
}

// absent reports whether a failure meets every request alike. A server that fails on one pod, as where a webhook for
// its namespace is down, may serve the others.
func absent(err error) bool {
	return unreachable(err) && !apierrors.IsInternalError(err) && !apierrors.IsTimeout(err) &&
		!apierrors.IsServerTimeout(err)
}
