package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/words"
)

// Snapshot is what the bus says of pods, and of what they need.
type Snapshot struct {
	pods.State
	// Probes say why a container isn't ready. The merged status says whether it is.
	Probes  map[string]topic.Probe
	Volumes map[string]topic.PodVolumes
	Healths map[string]topic.DaemonHealth
	Runtime topic.Runtime
	// Steps and Events are the history that the bus keeps, oldest first.
	Steps  []topic.Step
	Events []topic.Event
}

// State is how a pod stands.
type State string

const (
	// Ready pods do what they should.
	Ready State = "ready"
	// Waiting pods should run, and some of their containers don't.
	Waiting State = "waiting"
	// Stopping pods should end, and some of their containers haven't.
	Stopping State = "stopping"
	// Ended pods have ended for good, and still exist.
	Ended State = "ended"
	// Gone pods are not on this node.
	Gone State = "gone"
)

// Answer is why a pod stands as it does.
type Answer struct {
	topic.Ref
	State State `json:"state"`
	// Detail adds what there is to say of the state, such as "1 of 2 containers ready".
	Detail string `json:"detail,omitempty"`
	// Since is when the node first saw the pod.
	Since time.Time `json:"since,omitzero"`
	// Causes are what keeps the pod, the most fundamental first; empty for a pod that is ready.
	Causes   []Cause  `json:"causes,omitempty"`
	Timeline []Moment `json:"timeline,omitempty"`
}

// Cause is one reason why a pod isn't in the state that it should be in.
type Cause struct {
	// What is the object: "container app", "volume data", "daemon pleg".
	What    string `json:"what"`
	Problem string `json:"problem"`
	// Advice is what to do; empty where waiting is all there is.
	Advice string `json:"advice,omitempty"`
}

// Explain answers for the pod with the UID.
func Explain(w Snapshot, ref topic.Ref, now time.Time) Answer {
	a := Answer{Ref: ref, State: Gone, Timeline: timeline(w, ref.UID)}
	update, known := w.Updates[ref.UID]
	if !known || update.Pod == nil {
		a.Detail = "it isn't on this node any more"
		if slices.Contains(w.Sources.Pods, ref.UID) {
			a.State, a.Detail = Waiting, "podsync has no worker for it yet"
			a.Causes = w.nodeCauses(nil, now)
		}
		return a
	}
	a.Since = update.FirstSeen
	v := view{
		Snapshot: w, pod: update.Pod, update: update, status: w.Statuses[ref.UID], row: w.row(ref.UID), now: now,
		steps: stepsOf(w.Steps, ref.UID),
	}
	switch {
	case v.status.Finished || update.Lifecycle == topic.Terminated && update.Pod.DeletionTimestamp == nil:
		a.State, a.Detail = Ended, outcome(v.status.Status)
		if update.Pod.DeletionTimestamp != nil {
			a.State, a.Causes = Stopping, v.kept()
		}
	case update.Lifecycle != topic.Syncing:
		a.State, a.Detail = Stopping, v.grace()
		a.Causes = v.orNothing(v.stopping(), w.nodeCauses(update.Pod, now))
	case v.row.Done && len(v.gates()) == 0:
		a.State, a.Detail = Ready, words.Plural(v.row.Total, "container")+" ready"
	default:
		a.State, a.Detail = Waiting, fmt.Sprintf("%d of %s ready", v.row.Ready, words.Plural(v.row.Total, "container"))
		a.Causes = v.orNothing(v.waiting(), w.nodeCauses(update.Pod, now))
	}
	return a
}

// row is the pod's line in the table of pods.
func (w Snapshot) row(uid string) pods.Row {
	one := w.State
	one.Updates = map[string]topic.Pod{uid: w.Updates[uid]}
	return pods.Build(one)[0]
}

// outcome is how a pod ended.
func outcome(status corev1.PodStatus) string {
	text := string(status.Phase)
	if status.Reason != "" {
		text += ", " + status.Reason
	}
	if status.Message != "" {
		text += ": " + status.Message
	}
	if status.Message == "" && status.Phase == corev1.PodFailed {
		for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
				return text + ": container " + c.Name + " " + exit(t)
			}
		}
	}
	return text
}

// exit is how a container ended.
func exit(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("ended with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += " (" + t.Reason + ")"
	}
	if t.Message != "" {
		text += ": " + strings.TrimSpace(t.Message)
	}
	return text
}
