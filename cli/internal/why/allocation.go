package why

import (
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
)

// allocationCauses are why the pod doesn't have its devices, CPUs or claims, before which none of its containers is
// started.
func allocationCauses(v view) []Cause {
	a := v.Allocations[v.row.UID]
	switch {
	case !v.update.Allocates || a.Phase == topic.Allocated:
		return nil
	case a.Phase == topic.AllocationRefused: // it fails when none of its containers runs any more
		f, _ := diagnose.End(a.Reason, a.Message, v.names(nil))
		return []Cause{allocationCause(a).found("none of its containers is started any more: ", f)}
	case a.Phase != "":
		cause := allocationCause(a).found("the pod can't start yet: ", diagnose.Allocation(a.Message, v.names(nil)))
		cause.Until = untilIn(a.Message, v.now)
		return []Cause{cause}
	}
	if cause, _ := v.daemonCause("resource", v.now); cause.Kind != "" {
		return nil // it is among the causes of the node
	}
	return []Cause{{
		Kind: "allocation-pending", What: "pod.allocation", Problem: "the daemon resource hasn't said anything of it",
		Sentence: "the pod can't start yet: the daemon resource hasn't given it its devices, CPUs or claims",
		Waits:    "the daemon resource", Advice: tapAllocation(v.pod),
	}}
}

func allocationCause(a topic.Allocation) Cause {
	return Cause{What: "pod.allocation", Problem: strings.TrimPrefix(a.Reason+": "+a.Message, ": ")}
}

// untilIn is when a wait ends by itself, if the text says so.
func untilIn(text string, now time.Time) time.Time {
	m := regexp.MustCompile(`; until (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, m[1])
	if err != nil || !until.After(now) {
		return time.Time{}
	}
	return until
}

func tapAllocation(pod *corev1.Pod) string {
	return "kubelot tap --topic pod.allocation --since 10m --pod " + pod.Namespace + "/" + pod.Name
}

// claimCauses are why the pod, none of whose containers runs, hasn't given its claims back.
func (v leaving) claimCauses() []Cause {
	a := v.Allocations[v.row.UID]
	if !a.Claims || a.Phase == topic.AllocationReleased {
		return nil
	}
	cause := allocationCause(a)
	if a.Message == "" {
		if away, _ := v.daemonCause("resource", v.now); away.Kind != "" {
			return nil
		}
		cause.Problem = "the daemon resource hasn't said anything of their end"
	}
	return []Cause{cause.found("the pod isn't gone, because its claims of devices aren't given back: ",
		diagnose.Allocation(cause.Problem, v.names(nil)))}
}
