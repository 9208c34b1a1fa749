package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

// NodeAnswer is what keeps the node from being ready, and whom it has evicted.
type NodeAnswer struct {
	Name  string `json:"name,omitempty"`
	Ready bool   `json:"ready"`
	// Sentence is the first cause's; empty where nothing is wrong.
	Sentence string `json:"sentence,omitempty"`
	// Detail is the Node's Ready condition as the API server has it.
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Causes also hold what keeps pods away or ends them though the node is ready.
	Causes  []Cause    `json:"causes,omitempty"`
	Evicted []Farewell `json:"evicted,omitempty"`
}

// Farewell is a pod that the node has ended or refused, or would have if the attempt hadn't failed.
type Farewell struct {
	topic.Ref
	At time.Time `json:"at"`
	// Sentence says why in a person's words, Reason in those of the daemon that decided it.
	Sentence string `json:"sentence"`
	Reason   string `json:"reason"`
	Error    string `json:"error,omitempty"`
}

// crew are the daemons that a node needs, the vital ones first.
var crew = append(slices.Clone(vital), "probe", "lease", "resource", "stats", "api", "gc")

// spare are the daemons without which pods run, and the node is ready.
var spare = []string{"resource", "stats", "api", "gc"}

// ExplainNode answers for the node.
func ExplainNode(w Snapshot, now time.Time) NodeAnswer {
	a := NodeAnswer{Name: w.Node.Name, Evicted: w.farewells()}
	var severe, mild []Cause
	for _, name := range crew {
		cause, degraded := w.daemonCause(name, now)
		switch {
		case cause.Kind == "":
		case degraded || slices.Contains(spare, name):
			mild = append(mild, cause)
		default:
			severe = append(severe, cause)
		}
	}
	severe = w.withRuntime(severe, nil)
	if w.Shutdown.Active {
		severe = append(severe, Cause{
			Kind: "node-shutdown", Sentence: "this node shuts down and ends its pods", What: "node",
			Problem: "a shutdown is under way", Waits: "the pods to end", Advice: "kubelot shutdown state",
		})
	}
	known := false
	for _, c := range w.Node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			known, a.Ready, a.Since = true, c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			a.Detail = fmt.Sprintf("Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	switch {
	case !known && len(severe) == 0:
		severe = append(severe, Cause{
			Kind:     "node-unregistered",
			Sentence: "the API server's Node object isn't known on this node, or says nothing of Ready",
			What:     "node", Problem: "no Ready condition", Waits: "the API server",
			Advice: "kubelot doctor; journalctl -u kubelot-lease",
		})
	case known && !a.Ready && len(severe) == 0:
		severe = append(severe, Cause{
			Kind: "node-not-ready", Sentence: "the node isn't ready: " + a.Detail, What: "node", Problem: a.Detail,
			Waits: "the next report of the daemon lease", Advice: "kubelot doctor",
		})
	}
	a.Causes = slices.Concat(severe, w.pressureCauses(), mild, w.manifestCauses(), w.schedulingCauses())
	w.units(a.Causes)
	if len(a.Causes) > 0 {
		a.Sentence = a.Causes[0].Sentence
	}
	return a
}

// pressureCauses are the eviction signals over their threshold.
func (w Snapshot) pressureCauses() []Cause {
	var causes []Cause
	for _, p := range []struct {
		under                 bool
		kind, what, who, with string
	}{
		{
			w.Pressure.Memory, "memory", "memory", "BestEffort pods are refused and pods are evicted",
			"kubectl top pods -A --sort-by=memory; give pods requests.memory that they keep",
		},
		{
			w.Pressure.Disk, "disk", "room on its disks", "pods are refused and evicted",
			"kubelot gc --dry-run --disk-pressure shows what can go; df -h and du -x on this node",
		},
		{
			w.Pressure.PID, "pid", "process IDs", "pods are refused and evicted",
			"ps -eo ppid= | sort | uniq -c | sort -n on this node; podPidsLimit in kubelot's configuration",
		},
	} {
		if p.under {
			causes = append(causes, Cause{
				Kind: "pressure-" + p.kind, Sentence: "this node runs out of " + p.what + ", so " + p.who,
				What: p.kind + " pressure", Problem: w.Pressure.Message,
				Waits: "the shortage to end, and some minutes more", Advice: p.with,
			})
		}
	}
	return causes
}

// schedulingCauses are why no new pods come.
func (w Snapshot) schedulingCauses() []Cause {
	if !w.Node.Spec.Unschedulable {
		return nil
	}
	return []Cause{{
		Kind: "cordoned", Sentence: "the node is cordoned, so no new pods come", What: "node",
		Problem: "spec.unschedulable is true", Advice: "kubectl uncordon " + w.Node.Name,
	}}
}

// refusals are the Events of pods that the node has refused or ended without gc.
var refusals = []string{
	"Preempting", "SysctlForbidden", "AppArmor", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration",
	"NodeShutdown", "InvalidNodeInfo", "UnexpectedAdmissionError", "VolumeAttachmentLimitExceeded", "PodOSNotSupported",
	"PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "TopologyAffinityError",
	"SMTAlignmentError", "PodFeatureUnsupported",
}

// farewells are the pods that the node has ended or refused, the last first.
func (w Snapshot) farewells() []Farewell {
	var list []Farewell
	evicted := map[string]bool{}
	for _, d := range w.Decisions {
		if d.Action != topic.ActionEvict || d.Pod == nil {
			continue
		}
		evicted[d.Pod.UID] = true
		list = append(list, Farewell{Ref: *d.Pod, At: d.At, Sentence: w.evictedFor(d), Reason: d.Reason, Error: d.Error})
	}
	for _, e := range w.Events {
		ends := slices.Contains(refusals, e.Reason) || strings.HasPrefix(e.Reason, "OutOf") || e.Reason == "Evicted"
		if e.Kind != "Pod" || !ends || evicted[e.UID] {
			continue
		}
		f, _ := diagnose.End(e.Reason, e.Message, names(e.Ref))
		list = append(list, Farewell{Ref: e.Ref, At: e.At, Sentence: f.Why, Reason: e.Reason + ": " + e.Message})
	}
	slices.SortStableFunc(list, func(a, b Farewell) int { return b.At.Compare(a.At) })
	return list
}

// evictedFor is the sentence of an eviction: the Event's text has the figures, and gc's reason where there is none.
func (w Snapshot) evictedFor(d topic.Decision) string {
	for _, e := range slices.Backward(w.Events) {
		if e.UID == d.Pod.UID && e.Reason == "Evicted" {
			if f, ok := diagnose.End(e.Reason, e.Message, names(*d.Pod)); ok {
				return f.Why
			}
		}
	}
	return diagnose.Innermost(d.Reason)
}

// shownFarewells is how many of them are drawn.
const shownFarewells = 20

// NodeText draws the answer.
func NodeText(a NodeAnswer, now time.Time, p paint.Painter) string {
	out := &drawing{Painter: p, now: now}
	name := out.Paint(paint.Bold, strings.TrimSpace("node "+words.OneLine(a.Name)))
	if a.Sentence != "" {
		fmt.Fprintf(out, "%s: %s.\n", name, sentence(a.Sentence))
		name = "It"
	}
	state, colour := "not ready", paint.Yellow
	if a.Ready {
		state, colour = "ready", paint.Green
	}
	fmt.Fprintf(out, "%s is %s", name, out.Paint(colour, state))
	if a.Detail != "" {
		fmt.Fprintf(out, " (%s)", words.Clip(words.OneLine(a.Detail), longest))
	}
	if !a.Since.IsZero() {
		fmt.Fprintf(out, " for %s", words.Age(now.Sub(a.Since)))
	}
	out.WriteByte('\n')
	out.causes(a.Causes, a.Detail)
	if len(a.Evicted) == 0 {
		return out.String()
	}
	fmt.Fprintf(out, "\nEnded or refused by this node\n")
	for _, f := range a.Evicted[:min(len(a.Evicted), shownFarewells)] {
		text := fmt.Sprintf("%s/%s: %s", f.Namespace, f.Name, f.Sentence)
		if f.Error != "" {
			text += "; not done: " + f.Error
		}
		fmt.Fprintf(out, "  %s  %s\n", out.Paint(paint.Dim, fmt.Sprintf("%5s ago", words.Age(now.Sub(f.At)))),
			words.Clip(words.OneLine(text), longest))
	}
	if more := len(a.Evicted) - shownFarewells; more > 0 {
		fmt.Fprintf(out, "  %d more; -o json shows all\n", more)
	}
	return out.String()
}
