package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// grace is how long a vital daemon or the runtime may be away before the node isn't Ready any more: long enough for a
// restart or an upgrade.
const grace = 30 * time.Second

// vital are the daemons without which pods can't start, be watched or be reported: the scheduler must not send pods to
// a node that lacks one of them, nor services requests to pods that nobody probes (docs/adr/0011).
var vital = []string{"podsync", "pleg", "volume", "probe", "status"}

// needed are the daemons that this node can't do without. Where each pod waits for the resource daemon, or the node has
// a plugin whose devices it allocates, that is one of them.
func needed(f Facts) []string {
	if f.Exclusive || len(f.Plugins) > 0 || f.Devices != nil && len(f.Devices.Devices) > 0 {
		return append(slices.Clone(vital), "resource")
	}
	return vital
}

// The kubelet's reasons and messages of node conditions; tools know them.
const (
	reasonReady    = "KubeletReady"
	reasonNotReady = "KubeletNotReady"
	messageReady   = "kubelet is posting ready status"
	shuttingDown   = "node is shutting down"
)

type pressureWords struct {
	condition                       corev1.NodeConditionType
	under                           func(topic.Pressure) bool
	badReason, badText, badEvent    string
	goodReason, goodText, goodEvent string
}

var pressures = []pressureWords{
	{
		corev1.NodeMemoryPressure, func(p topic.Pressure) bool { return p.Memory },
		"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory",
		"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory",
	},
	{
		corev1.NodeDiskPressure, func(p topic.Pressure) bool { return p.Disk },
		"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure",
		"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure",
	},
	{
		corev1.NodePIDPressure, func(p topic.Pressure) bool { return p.PID },
		"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID",
		"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID",
	},
}

// Conditions are the node's conditions: those of other owners first, as they are, then the node's own, Ready last.
// status is the Node's status so far.
func Conditions(f Facts, status corev1.NodeStatus) []corev1.NodeCondition {
	var all []corev1.NodeCondition
	for _, c := range status.Conditions {
		if !ownCondition(c.Type) {
			all = append(all, c)
		}
	}
	for _, p := range pressures {
		c := corev1.NodeCondition{Type: p.condition, Status: corev1.ConditionFalse, Reason: p.goodReason, Message: p.goodText}
		if f.pressed(p, condition(status.Conditions, p.condition)) {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, p.badReason, p.badText
		}
		all = append(all, dated(c, status.Conditions, f.Now))
	}
	return append(all, dated(ready(f, status), status.Conditions, f.Now))
}

// pressed reports whether the node has that pressure. Until gc has told, it is as it was, for the time of grace.
func (f Facts) pressed(p pressureWords, old *corev1.NodeCondition) bool {
	if f.Pressure != nil {
		return p.under(*f.Pressure)
	}
	return old != nil && old.Status == corev1.ConditionTrue && f.Now.Sub(f.Listening) < grace
}

func ownCondition(t corev1.NodeConditionType) bool {
	return t == corev1.NodeReady || slices.ContainsFunc(pressures, func(p pressureWords) bool { return p.condition == t })
}

// dated sets the time of the report and of the last change of status.
func dated(c corev1.NodeCondition, current []corev1.NodeCondition, now time.Time) corev1.NodeCondition {
	c.LastHeartbeatTime = metav1.NewTime(now).Rfc3339Copy()
	c.LastTransitionTime = c.LastHeartbeatTime
	if old := condition(current, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

func condition(list []corev1.NodeCondition, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// ready is the Ready condition.
func ready(f Facts, status corev1.NodeStatus) corev1.NodeCondition {
	old := condition(status.Conditions, corev1.NodeReady)
	if old != nil && old.Status != corev1.ConditionUnknown && silent(f.Health, f.Now) {
		// Nobody says anything: the bus is away, and the daemons go on without it.
		return *old
	}
	patience := time.Duration(0)
	if old != nil && old.Status == corev1.ConditionTrue {
		patience = grace
	}
	problems := append(runtimeProblems(f, patience), daemonProblems(f, patience)...)
	if f.Shutdown != nil && f.Shutdown.Active {
		problems = append(problems, shuttingDown)
	}
	problems = append(problems, csiProblems(f, patience)...)
	problems = append(problems, capacityProblems(status)...)
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: reasonReady,
		Message: messageReady,
	}
	if len(problems) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonNotReady, problems[0]
		if len(problems) > 1 {
			c.Message = "[" + strings.Join(problems, ", ") + "]"
		}
	}
	return c
}

// csiProblems is that there is no CSINode; one that was there may be looked for during the time of patience.
func csiProblems(f Facts, patience time.Duration) []string {
	if f.CSI.Missing == nil || (patience > 0 && f.Now.Sub(f.Listening) < patience) {
		return nil
	}
	return []string{f.CSI.Missing.Error()}
}

func capacityProblems(status corev1.NodeStatus) []string {
	var missing []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if _, ok := status.Capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []string{"missing node capacity for resources: " + strings.Join(missing, ", ")}
}

// silent reports whether all daemons are silent, this one included. One that sleeps says nothing anyway.
func silent(health map[string]topic.DaemonHealth, now time.Time) bool {
	for _, h := range health {
		if !h.Asleep && !h.Silent(now) {
			return false
		}
	}
	return true
}

// runtimeProblems are what is wrong with the runtime; one that was well may be away for the time of patience. So may
// the first word of it.
func runtimeProblems(f Facts, patience time.Duration) []string {
	r := f.Runtime
	switch {
	case r == nil && f.Now.Sub(f.Listening) < patience:
		return nil
	case r == nil:
		return []string{"container runtime status check may not have completed yet"}
	case !f.RuntimeDown.IsZero() && f.Now.Sub(f.RuntimeDown) >= patience:
		if !r.Reachable {
			return []string{"container runtime is down: " + r.Message}
		}
		return []string{"container runtime is down: " + words("RuntimeReady", r.RuntimeReady)}
	case r.Reachable && r.RuntimeReady.Status && !r.NetworkReady.Status:
		return []string{"container runtime network not ready: " + words("NetworkReady", r.NetworkReady)}
	}
	return nil
}

func words(name string, c topic.RuntimeCondition) string {
	return fmt.Sprintf("%s=%t reason:%s message:%s", name, c.Status, c.Reason, c.Message)
}

// daemonProblems are what is wrong with the vital daemons. Their texts hold no figures that change by themselves:
// each change of the text is written to the API server. Patience begins with this daemon at the earliest: where the
// whole crew is restarted, what the others said last is how they ended, and on a slow machine that may be long ago.
func daemonProblems(f Facts, patience time.Duration) []string {
	var problems []string
	for _, name := range needed(f) {
		h, known := f.Health[name]
		listening := f.Now.Sub(f.Listening)
		since := min(f.Now.Sub(h.Since), listening)
		switch {
		case !known && listening < patience:
			// The first start on a node that was Ready under another agent.
		case !known:
			problems = append(problems, fmt.Sprintf("kubelot-%s has not started yet", name))
		case h.State == topic.Unhealthy && since >= patience && name == "pleg":
			problems = append(problems, "PLEG is not healthy: "+h.Message)
		case h.State == topic.Unhealthy && since >= patience:
			problems = append(problems, fmt.Sprintf("kubelot-%s is not healthy: %s", name, h.Message))
		case h.State == topic.Stopped && since >= patience:
			problems = append(problems, fmt.Sprintf("kubelot-%s has been stopped", name))
		case h.Silent(f.Now) && listening >= patience:
			problems = append(problems, fmt.Sprintf("kubelot-%s last reported at %s", name,
				h.Beat.UTC().Format(time.RFC3339)))
		}
	}
	return problems
}
