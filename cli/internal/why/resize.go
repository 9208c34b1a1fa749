package why

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cli/internal/why/diagnose"
)

const notResized = "the pod can't get its new size: "

// resizeCauses are why a pod that runs doesn't have the size that its spec asks for.
func resizeCauses(v view) []Cause {
	var causes []Cause
	for _, c := range v.Status(v.row.UID).Conditions {
		if c.Status != corev1.ConditionTrue || c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			continue
		}
		why := diagnose.Innermost(c.Message)
		cause := Cause{What: "resize", Problem: strings.TrimPrefix(c.Reason+": "+c.Message, ": ")}
		switch {
		case c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible:
			cause.Kind, cause.Sentence = "resize-infeasible", "the pod can't get its new size on this node: "+why
			cause.Advice = "set other resources: kubectl edit pod " + v.pod.Name + " -n " + v.pod.Namespace +
				" --subresource=resize"
		case c.Type == corev1.PodResizePending:
			cause.Kind, cause.Sentence = "resize-deferred", "the pod waits for its new size: "+why
			cause.Waits = "room on this node"
			cause.Advice = "kubectl describe node shows who has it"
		case c.Reason == corev1.PodReasonError:
			cause = cause.found(notResized, diagnose.Resize(c.Message, v.names(nil)))
		default:
			continue // it is under way
		}
		causes = append(causes, cause)
	}
	return causes
}
