package why

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
)

// vital are the daemons without which no pod starts or ends, in the order of a pod's way.
var vital = []string{"podsync", "pleg", "volume", "status"}

// nodeCauses are what keeps every pod of the node; a pod on the host network needs no pod network.
func (w Snapshot) nodeCauses(pod *corev1.Pod, now time.Time) []Cause {
	var causes []Cause
	for _, name := range vital {
		h, ok := w.Healths[name]
		problem := "reports no health"
		if ok {
			problem = health.Problem(h, now)
		}
		if problem != "" {
			causes = append(causes, Cause{"daemon " + name, problem, health.Advice(name)})
		}
	}
	if !w.Sources.Ready {
		waiting := make([]string, 0, len(w.Sources.Waiting))
		for _, source := range w.Sources.Waiting {
			waiting = append(waiting, string(source))
		}
		causes = append(causes, Cause{
			"pod sources", strings.TrimSpace("not read yet: " + strings.Join(waiting, ", ")),
			"see why podsync can't read them: journalctl -u kubelot-podsync",
		})
	}
	return append(causes, runtimeCauses(w.Runtime, pod)...)
}

func runtimeCauses(r topic.Runtime, pod *corev1.Pod) []Cause {
	const advice = "kubelot doctor; then the runtime's own log"
	switch {
	case r.Name == "" && r.Message == "":
		return nil // pleg hasn't reported, and that is among the daemons' problems
	case !r.Reachable:
		return []Cause{{"container runtime", "doesn't answer: " + r.Message, advice}}
	case !r.RuntimeReady.Status:
		return []Cause{{"container runtime", "not ready: " + r.RuntimeReady.Reason + " " + r.RuntimeReady.Message, advice}}
	case !r.NetworkReady.Status && (pod == nil || !pod.Spec.HostNetwork):
		return []Cause{{
			"pod network", "not ready: " + r.NetworkReady.Reason + " " + r.NetworkReady.Message,
			"a CNI configuration must be in /etc/cni/net.d: is the network's DaemonSet installed, and does it run on this node?",
		}}
	}
	return nil
}
