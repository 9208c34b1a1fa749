package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/pulls"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

// Snapshot is what the bus says of pods, and of what they need.
type Snapshot struct {
	pods.State
	// Probes say why a container isn't ready. The merged status says whether it is.
	Probes  map[string]topic.Probe
	Volumes map[string]topic.PodVolumes
	// Allocations are the devices, CPUs and claims of the pods that ask for some.
	Allocations map[string]topic.Allocation
	Healths     map[string]topic.DaemonHealth
	Runtime     topic.Runtime
	// Node is as the API server has it; without a name it isn't known.
	Node     corev1.Node
	Pressure topic.Pressure
	Shutdown topic.Shutdown
	// Steps, Events and Decisions are the history that the bus keeps, oldest first.
	Steps     []topic.Step
	Events    []topic.Event
	Decisions []topic.Decision
	// Pulls are the images that the runtime is fetching, if it tells.
	Pulls []pulls.Pull
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
	// Sentence is the cause in a person's words, with the object to act on; empty for a pod that is ready.
	Sentence string `json:"sentence,omitempty"`
	// Detail adds what there is to say of the state, such as "1 of 2 containers ready".
	Detail string `json:"detail,omitempty"`
	// Since is when the node first saw the pod.
	Since time.Time `json:"since,omitzero"`
	// Causes are what keeps the pod, the most fundamental first; empty for a pod that is ready.
	Causes   []Cause  `json:"causes,omitempty"`
	Timeline []Moment `json:"timeline,omitempty"`
}

// Cause is one reason why a pod or the node isn't in the state that it should be in.
type Cause struct {
	// Kind is a short name of the problem, such as image-not-found; docs/why.md lists them.
	Kind string `json:"kind"`
	// Sentence says it in a person's words, without a full stop.
	Sentence string `json:"sentence"`
	// What is the object: "container app", "volume data", "daemon pleg". Problem is what was reported of it, in the
	// words of the daemon, the runtime or the container.
	What    string `json:"what"`
	Problem string `json:"problem"`
	// Waits is what kubelot waits for, Until when it acts at the latest; both may be empty.
	Waits string    `json:"waits,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Advice is what to do; empty where waiting is all there is.
	Advice string `json:"advice,omitempty"`
	// Pull is how far the pull of an image is, if the runtime tells.
	Pull *pulls.Pull `json:"pull,omitempty"`
}

// found fills a cause with what was diagnosed. lead begins the sentence.
func (c Cause) found(lead string, f diagnose.Finding) Cause {
	c.Kind, c.Sentence, c.Waits, c.Advice = f.Kind, lead+f.Why, f.Waits, f.Do
	return c
}

// Explain answers for the pod with the UID.
func Explain(w Snapshot, ref topic.Ref, now time.Time) Answer {
	a := explain(w, ref, now)
	w.units(a.Causes)
	if len(a.Causes) > 0 {
		a.Sentence = a.Causes[0].Sentence
	}
	return a
}

// units names in the advice the systemd units of the layout, and what the node's container runtime has.
func (w Snapshot) units(causes []Cause) {
	pids := health.Processes(w.Healths)
	for i := range causes {
		causes[i].Advice = health.OfRuntime(health.Units(causes[i].Advice, pids), w.Runtime.Name)
	}
}

func explain(w Snapshot, ref topic.Ref, now time.Time) Answer {
	if ref.UID == "" {
		return Answer{Ref: ref, State: Gone, Detail: "this node has never had it", Causes: w.unread(ref.Name)}
	}
	a := Answer{Ref: ref, State: Gone, Timeline: timeline(w, ref.UID)}
	update, known := w.Updates[ref.UID]
	if !known || update.Pod == nil {
		a.Detail, a.Causes = "it isn't on this node any more", w.farewell(ref)
		if slices.Contains(w.Sources.Pods, ref.UID) {
			a.State, a.Detail = Waiting, "podsync has no worker for it yet"
			vital, others := w.nodeCauses(nil, now)
			a.Causes = append(vital, others...)
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
		a.State, a.Detail, a.Causes = Ended, outcome(v.status.Status), leaving{v}.ended()
		if update.Pod.DeletionTimestamp != nil {
			a.State, a.Causes = Stopping, leaving{v}.kept()
		}
	case update.Lifecycle != topic.Syncing:
		a.State, a.Detail = Stopping, v.grace()
		a.Causes = v.withNode(leaving{v}.stopping())
	case v.row.Done && len(v.gates()) == 0 && !v.startFails():
		a.State, a.Detail = Ready, words.Plural(v.row.Total, "container")+" ready"
		a.Causes = append(resizeCauses(v), debugCauses(v)...)
	default:
		a.State, a.Detail = Waiting, fmt.Sprintf("%d of %s ready", v.row.Ready, words.Plural(v.row.Total, "container"))
		a.Causes = v.withNode(v.waiting())
	}
	return a
}

// row is the pod's line in the table of pods.
func (w Snapshot) row(uid string) pods.Row {
	one := w.State
	one.Updates = map[string]topic.Pod{uid: w.Updates[uid]}
	return pods.Build(one)[0]
}

// farewell is why the node has ended a pod that is gone, as far as its Events are kept.
func (w Snapshot) farewell(ref topic.Ref) []Cause {
	for _, e := range slices.Backward(w.Events) {
		if e.UID != ref.UID || e.Type != corev1.EventTypeWarning && e.Reason != "DeadlineExceeded" {
			continue
		}
		f, ok := diagnose.End(e.Reason, e.Message, names(ref))
		if !ok || f.Kind == "ended-by-node" {
			continue
		}
		cause := Cause{What: "Event " + e.Reason, Problem: strings.TrimSpace(e.Message)}
		lead := "this node has ended it: "
		if strings.HasPrefix(f.Kind, "rejected-") {
			lead = "this node has refused it: "
		}
		return []Cause{cause.found(lead, f)}
	}
	return nil
}

func names(ref topic.Ref) diagnose.Names {
	return diagnose.Names{Namespace: ref.Namespace, Pod: ref.Name}
}

// outcome is how a pod ended.
func outcome(status corev1.PodStatus) string {
	text := string(status.Phase)
	if status.Reason != "" {
		text += ", " + status.Reason
	}
	if status.Message != "" {
		text += ": " + strings.TrimSpace(status.Message)
	}
	if status.Message == "" && status.Phase == corev1.PodFailed {
		if name, t := failure(status); t != nil {
			return text + ": container " + name + " " + exit(t)
		}
	}
	return text
}

// failure is the first container that has ended with a failure.
func failure(status corev1.PodStatus) (name string, t *corev1.ContainerStateTerminated) {
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return c.Name, t
		}
	}
	return "", nil
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
