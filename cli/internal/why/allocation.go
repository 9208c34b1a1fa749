package why

import (
	"regexp"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
)

// allocationCauses are why the pod doesn't have its devices, CPUs or claims, before which none of its containers is
// started.
func (v view) allocationCauses() []Cause {
	a := v.Allocations[v.row.UID]
	switch {
	case !v.update.Allocates || a.Phase == topic.Allocated:
		return nil
	case a.Phase == topic.AllocationRefused: // it fails when none of its containers runs any more
		f, _ := diagnose.End(a.Reason, a.Message, v.names(nil))
		return []Cause{v.allocationCause(a).found("none of its containers is started any more: ", f)}
	case a.Phase != "":
		cause := v.allocationCause(a).found("the pod can't start yet: ", diagnose.Allocation(a.Message, v.names(nil)))
		cause.Until = v.allocationUntil(a.Message)
		return []Cause{cause}
	}
	if cause, _ := v.daemonCause("resource", v.now); cause.Kind != "" {
		return nil // it is among the causes of the node
	}
	return []Cause{{
		Kind: "allocation-pending", What: "pod.allocation", Problem: "the daemon resource hasn't said anything of it",
		Sentence: "the pod can't start yet: the daemon resource hasn't given it its devices, CPUs or claims",
		Waits:    "the daemon resource", Advice: v.tapAllocation(),
	}}
}

func (v view) allocationCause(a topic.Allocation) Cause {
	return Cause{What: "pod.allocation", Problem: strings.TrimPrefix(a.Reason+": "+a.Message, ": ")}
}

// allocationUntil is when a wait ends by itself, if the text says so.
func (v view) allocationUntil(text string) time.Time {
	m := regexp.MustCompile(`; until (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, m[1])
	if err != nil || !until.After(v.now) {
		return time.Time{}
	}
	return until
}

func (v view) tapAllocation() string {
	return "kubelot tap --topic pod.allocation --since 10m --pod " + v.pod.Namespace + "/" + v.pod.Name
}

// claimCauses are why the pod, none of whose containers runs, hasn't given its claims back.
func (v leaving) claimCauses() []Cause {
	a := v.Allocations[v.row.UID]
	if !a.Claims || a.Phase == topic.AllocationReleased {
		return nil
	}
	cause := v.allocationCause(a)
	if a.Message == "" {
		if away, _ := v.daemonCause("resource", v.now); away.Kind != "" {
			return nil
		}
		cause.Problem = "the daemon resource hasn't said anything of their end"
	}
	return []Cause{cause.found("the pod isn't gone, because its claims of devices aren't given back: ",
		diagnose.Allocation(cause.Problem, v.names(nil)))}
}
