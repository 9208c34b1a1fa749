package why

import (
	"fmt"
	"slices"
	"strings"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// grace is how long the pod may take to end.
func (v view) grace() string {
	switch deadline := v.update.Deadline; {
	case v.update.Lifecycle == topic.Terminated:
		return "no container runs any more"
	case deadline == nil:
		return "without a deadline"
	case v.now.Before(*deadline):
		return fmt.Sprintf("its grace period ends in %s", words.Age(deadline.Sub(v.now)))
	default:
		return fmt.Sprintf("its grace period ended %s ago", words.Age(v.now.Sub(*deadline)))
	}
}

// stopping are the causes of a pod that should end.
func (v view) stopping() []Cause {
	var causes []Cause
	if v.update.Lifecycle == topic.Terminated {
		causes = v.volumeCauses(topic.VolumeUnmounted)
	} else {
		seen := map[string]bool{}
		for _, c := range v.Observations[v.row.UID].Containers {
			underWay := slices.ContainsFunc(v.steps.open, func(s topic.Step) bool { return s.Container == c.Name })
			if !seen[c.Name] && !underWay && c.State == topic.ContainerRunning {
				causes = append(causes, Cause{What: "container " + c.Name, Problem: "still runs"})
			}
			seen[c.Name] = true
		}
	}
	return append(causes, v.stepCauses(causes)...)
}

// kept is why a pod that is over on this node still exists.
func (v view) kept() []Cause {
	if finalizers := v.pod.Finalizers; len(finalizers) > 0 {
		return []Cause{{"API server", "it is over on this node, and the pod's finalizers keep it: " + strings.Join(finalizers,
			", "), "the owner of each finalizer must remove it"}}
	}
	return []Cause{{"API server", "it is over on this node, and not deleted yet", "see whether kubelot-status reaches " +
		"the API server: kubelot doctor"}}
}
