package why

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cli/internal/why/diagnose"
)

// debugCauses are why the debug container that was added last doesn't start. The pod is ready without it, but who asks
// may wait for it.
func debugCauses(v view) []Cause {
	all := v.pod.Spec.EphemeralContainers
	if len(all) == 0 {
		return nil
	}
	c := corev1.Container(all[len(all)-1].EphemeralContainerCommon)
	s := find(v.status.Status.EphemeralContainerStatuses, c.Name)
	what := "debug container " + c.Name
	switch {
	case s == nil:
	case s.State.Waiting != nil:
		return v.waitingCause(what, &c, s)
	case s.State.Terminated != nil && s.State.Terminated.Reason == startError:
		cause := Cause{What: what, Problem: exit(s.State.Terminated)}.found(what+" can't start: ",
			diagnose.Start(s.State.Terminated.Message, v.names(&c)))
		// It is never started again.
		cause.Waits, cause.Advice = "", "kubectl debug -n "+v.pod.Namespace+" "+v.pod.Name+" makes another one"
		return []Cause{cause}
	}
	return nil
}
