package podstatus

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/worker/plan"

	"kubelot.dev/daemon/podspec"
)

// tally counts the main containers by what their status says.
type tally struct {
	waiting, running, stopped, failed int
}

// Terminal reports whether a pod in this phase has ended for good.
func Terminal(p corev1.PodPhase) bool { return p == corev1.PodFailed || p == corev1.PodSucceeded }

// phase is the pod's phase (API reference, PodPhase). A terminal phase is final.
func phase(in Input, status *corev1.PodStatus) corev1.PodPhase {
	if Terminal(in.Previous.Phase) {
		return in.Previous.Phase
	}
	count := tallyOf(status.ContainerStatuses)
	pendingInit, failedInit := initProgress(in, status, count.running+count.stopped > 0)
	switch {
	case in.Ended && (in.Fail || failedInit || !count.succeeded()):
		return corev1.PodFailed
	case in.Ended:
		return corev1.PodSucceeded
	case pendingInit || failedInit || count.waiting > 0:
		return corev1.PodPending
	default:
		return corev1.PodRunning
	}
}

// succeeded reports whether there are containers and every one has ended well.
func (t tally) succeeded() bool {
	return t.failed == 0 && t.waiting == 0 && t.running == 0 && t.stopped > 0
}

func tallyOf(statuses []corev1.ContainerStatus) tally {
	var t tally
	for _, s := range statuses {
		switch {
		case s.State.Running != nil:
			t.running++
		case s.State.Terminated != nil:
			t.stopped++
			if s.State.Terminated.ExitCode != 0 {
				t.failed++
			}
		case s.LastTerminationState.Terminated != nil:
			// Waiting to be started again: it has run, so the pod isn't pending any more.
			t.stopped++
			if s.LastTerminationState.Terminated.ExitCode != 0 {
				t.failed++
			}
		default:
			t.waiting++
		}
	}
	return t
}

// initProgress reports whether init containers are still to finish, and whether one failed for good. A rejected pod has
// no statuses. Once a main container has run, initialization is past. If the init containers run again nevertheless, as
// in a new sandbox, what the runtime has of them counts.
func initProgress(in Input, status *corev1.PodStatus, past bool) (pending, failed bool) {
	if rejected(in) {
		return true, false
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		s := &status.InitContainerStatuses[i]
		ended := s.State.Terminated
		switch {
		case podspec.IsSidecar(c):
			pending = pending || !past && s.State.Running == nil
		case ended == nil:
			pending = pending || !past || s.State.Running != nil
		case ended.ExitCode == 0:
		case plan.Policy(in.Pod, c, ended.ExitCode, true) == corev1.RestartPolicyNever:
			failed = failed || !past || s.ContainerID != ""
		default:
			pending = pending || !past
		}
	}
	return pending, failed
}
