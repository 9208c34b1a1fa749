package status

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// served is the status that the API server has of an object, as far as that is known: from its answers to this daemon,
// and from podsync's watch, of which either may come late.
type served struct {
	// status is the newest known; nil where none is.
	status *corev1.PodStatus
	// version is the resource version of status, seen the last one that the watch has told.
	version, seen uint64
	// sure is false while the API server has to be asked before anything may be written: the status may be older than this
	// daemon's last write.
	sure bool
	// refused is the last patch that was answered and has changed nothing: an API server drops what it doesn't know, and
	// what belongs to features that it was told to leave off. It is sent again each resendEvery only.
	refused []byte
}

// known is the status to write on, or nil: ask first.
func (s *served) known() *corev1.PodStatus {
	if !s.sure {
		return nil
	}
	return s.status
}

// observe takes in what the watch reports. news is false for what was known. A version that goes back is an API server
// that was restored to an earlier state: what it had answered holds no longer.
func (s *served) observe(resourceVersion string, status corev1.PodStatus) (news bool) {
	version := orderOf(resourceVersion)
	wentBack := version > 0 && version < s.seen
	if version > 0 {
		s.seen = version
	}
	if version <= s.version && !wentBack {
		return false
	}
	s.status, s.version = &status, version
	if wentBack {
		s.sure, s.refused = false, nil
	}
	return true
}

// answered takes in the object that the API server has answered with. The watch may have delivered a later version by
// now; an answer older than what was known at the request is that of a server that was restored, and one as old to a
// patch says that it changed nothing.
func (s *served) answered(pod *corev1.Pod, to action) {
	s.sure = true
	version, since := orderOf(pod.ResourceVersion), to.since
	if to.verb == doPatch && version > 0 && version == since {
		s.refused = to.patch
	}
	if s.status == nil || version >= s.version || version < since {
		s.status, s.version = pod.Status.DeepCopy(), version
	}
}

// doubt has the API server asked before the next write.
func (s *served) doubt() { s.sure = false }

// fresh reports whether no node agent has written to the status yet.
func fresh(s corev1.PodStatus) bool { return s.StartTime == nil && s.ContainerStatuses == nil }

// orderOf is the place of a resource version in the order of an object's states (KEP-5504 makes them comparable); 0
// where there is none.
func orderOf(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
