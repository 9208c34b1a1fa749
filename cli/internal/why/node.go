package why

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
	"kubelot.dev/cli/internal/why/diagnose"
)

// vital are the daemons without which no pod starts or ends, in the order of a pod's way.
var vital = []string{"podsync", "pleg", "volume", "status"}

// without is what does not happen while a daemon is away.
var without = map[string]string{
	"podsync": "no pod is started or ended", "pleg": "nobody sees what runs",
	"volume": "no volume is mounted or unmounted", "status": "the API server isn't told how pods stand",
	"probe": "no probe is run", "lease": "the Node isn't kept up to date",
	"gc":       "nothing is cleaned up and nobody is evicted",
	"resource": "no pod gets devices, CPUs of its own or claims, or gives them back",
	"stats":    "the node's memory, disks and usage aren't measured",
	"api":      "kubectl logs, exec and top don't work for the node's pods",
}

// nodeCauses are what keeps every pod of the node, and what is wrong besides. A pod on the host network needs no pod
// network, and not every pod needs the daemons of devices and of probes.
func (w Snapshot) nodeCauses(update *topic.Pod, now time.Time) (vitals, others []Cause) {
	names := slices.Clone(vital)
	if update != nil && update.Allocates {
		names = append(names, "resource")
	}
	if update != nil && hasProbes(update) {
		names = append(names, "probe")
	}
	for _, name := range names {
		cause, degraded := w.daemonCause(name, now)
		switch {
		case cause.Kind == "":
		case degraded || name == "status" || name == "probe" || name == "resource" && w.has(update):
			others = append(others, cause)
		default:
			vitals = append(vitals, cause)
		}
	}
	if !w.Sources.Ready {
		waiting := make([]string, 0, len(w.Sources.Waiting))
		for _, source := range w.Sources.Waiting {
			waiting = append(waiting, string(source))
		}
		list := strings.Join(waiting, ", ")
		vitals = append(vitals, Cause{
			Kind: "sources-unread", Sentence: strings.TrimSuffix("kubelot hasn't read all its sources of pods yet: "+list, ": "),
			What: "pod sources", Problem: strings.TrimSpace("not read yet: " + list), Waits: "the pod sources",
			Advice: "see why podsync can't read them: journalctl -u kubelot-podsync",
		})
	}
	return w.withRuntime(vitals, update), others
}

// withRuntime adds what is wrong with the runtime. Daemons are unhealthy because of a runtime that doesn't answer, not
// the other way round.
func (w Snapshot) withRuntime(vitals []Cause, update *topic.Pod) []Cause {
	at := len(vitals)
	if first := slices.IndexFunc(vitals, isUnhealthy); !w.Runtime.Reachable && first >= 0 {
		at = first
	}
	return slices.Insert(vitals, at, runtimeCauses(w.Runtime, update)...)
}

func isUnhealthy(c Cause) bool { return c.Kind == "daemon-"+string(topic.Unhealthy) }

// hasProbes reports whether the pod has probes that are run.
func hasProbes(update *topic.Pod) bool {
	if update.Pod == nil || update.Lifecycle != topic.Syncing {
		return false
	}
	return slices.ContainsFunc(slices.Concat(update.Pod.Spec.InitContainers, update.Pod.Spec.Containers),
		func(c corev1.Container) bool {
			return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
		})
}

// has reports whether the pod has its devices, CPUs and claims, or has given back what it should.
func (w Snapshot) has(update *topic.Pod) bool {
	a := w.Allocations[string(update.Pod.UID)]
	if update.Lifecycle == topic.Syncing {
		return a.Phase == topic.Allocated
	}
	return update.Lifecycle != topic.Terminated || !a.Claims || a.Phase == topic.AllocationReleased
}

// daemonCause is what is wrong with a daemon; without a kind nothing is.
func (w Snapshot) daemonCause(name string, now time.Time) (cause Cause, degraded bool) {
	h, ok := w.Healths[name]
	problem := "reports no health"
	if ok {
		problem = health.Problem(h, now)
	}
	if problem == "" {
		return Cause{}, false
	}
	cause = Cause{
		Kind: "daemon-silent", Sentence: "the daemon " + name + " doesn't run, so " + without[name],
		What: "daemon " + name, Problem: problem, Waits: "the daemon", Advice: health.Advice(name),
	}
	switch {
	case !ok:
	case h.State == topic.Stopped:
		cause.Kind, cause.Sentence = "daemon-stopped", "the daemon "+name+" has been stopped, so "+without[name]
		cause.Advice = "systemctl start kubelot-" + name
	case h.Silent(now):
		cause.Sentence = "the daemon " + name + " doesn't run or hangs, so " + without[name]
	default:
		cause.Kind = "daemon-" + string(h.State)
		cause.Sentence = "the daemon " + name + " is " + string(h.State) + ": " + diagnose.Innermost(h.Message)
	}
	return cause, ok && h.State == topic.Degraded && !h.Silent(now)
}

func runtimeCauses(r topic.Runtime, update *topic.Pod) []Cause {
	cause := Cause{
		What: "container runtime", Waits: "the container runtime",
		Advice: "kubelot doctor; then the runtime's own log: journalctl -u containerd",
	}
	switch {
	case r.Name == "" && r.Message == "":
		return nil // pleg hasn't reported, and that is among the daemons' problems
	case !r.Reachable:
		f := diagnose.Runtime(r.Message)
		cause.Kind, cause.Problem = "runtime-away", "doesn't answer: "+r.Message
		cause.Sentence = "the container runtime of this node doesn't answer: " + f.Why
		switch f.Kind {
		case "runtime-away":
			cause.Sentence = "the container runtime of this node isn't running, or has its socket elsewhere"
		case "runtime-slow":
			cause.Kind, cause.Sentence = "runtime-hangs", "the container runtime of this node hangs: it doesn't answer in time"
			cause.Advice = "kubelot doctor; uptime and journalctl -u containerd; if it stays so: systemctl restart containerd"
		}
	case !r.RuntimeReady.Status:
		problem := strings.TrimSpace(r.RuntimeReady.Reason + " " + r.RuntimeReady.Message)
		cause.Kind, cause.Problem = "runtime-not-ready", "not ready: "+problem
		cause.Sentence = "the container runtime of this node says that it isn't ready: " + problem
	case !r.NetworkReady.Status && (update == nil || !update.Pod.Spec.HostNetwork):
		problem := strings.TrimSpace(r.NetworkReady.Reason + " " + r.NetworkReady.Message)
		cause.Kind, cause.What, cause.Problem = "network-not-ready", "pod network", "not ready: "+problem
		cause.Sentence = "this node has no pod network yet: " + problem
		cause.Waits = "the network's configuration"
		cause.Advice = "a CNI configuration must be in /etc/cni/net.d: is the network's DaemonSet installed, and does it " +
			"run on this node?"
	default:
		return nil
	}
	return []Cause{cause}
}
