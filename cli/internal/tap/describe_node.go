package tap

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/shutdown"
	"kubelot.dev/cli/internal/words"
)

func describeMachine(_ string, now topic.Machine, _ *topic.Machine) (string, bool) {
	return fmt.Sprintf("%s, %d MiB memory, %s, cgroup v%d", words.Plural(now.NumCores, "core"), now.MemoryBytes>>20,
		now.OSImage, now.CgroupVersion), false
}

func describeRuntime(_ string, now topic.Runtime, _ *topic.Runtime) (string, bool) {
	if !now.Reachable {
		return "runtime doesn't answer: " + now.Message, true
	}
	text := fmt.Sprintf("%s %s", now.Name, now.Version)
	urgent := false
	for _, c := range []struct {
		name      string
		condition topic.RuntimeCondition
	}{{"runtime", now.RuntimeReady}, {"network", now.NetworkReady}} {
		if c.condition.Status {
			text += ", " + c.name + " ready"
			continue
		}
		text += fmt.Sprintf(", %s not ready: %s %s", c.name, c.condition.Reason, c.condition.Message)
		urgent = true
	}
	return text, urgent
}

func describeNode(_ string, now corev1.Node, _ *corev1.Node) (string, bool) {
	parts := []string{now.Name}
	urgent := false
	for _, c := range now.Status.Conditions {
		if c.Status != corev1.ConditionFalse || c.Type == corev1.NodeReady {
			parts = append(parts, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
		urgent = urgent || (c.Type == corev1.NodeReady) != (c.Status == corev1.ConditionTrue)
	}
	return strings.Join(parts, ", "), urgent
}

func describePressure(_ string, now topic.Pressure, _ *topic.Pressure) (string, bool) {
	var under []string
	for _, p := range []struct {
		on   bool
		name string
	}{{now.Memory, "memory"}, {now.Disk, "disk"}, {now.PID, "pid"}} {
		if p.on {
			under = append(under, p.name)
		}
	}
	if len(under) == 0 {
		return "no pressure", false
	}
	return strings.TrimRight(strings.Join(under, " and ")+" pressure: "+now.Message, ": "), true
}

func describeShutdown(_ string, now topic.Shutdown, _ *topic.Shutdown) (string, bool) {
	if !now.Active {
		return "the node doesn't shut down", false
	}
	text := "the node shuts down: " + shutdown.Step(now)
	if now.Message != "" {
		text += "; left: " + now.Message
	}
	return text, true
}

func describeHealth(key string, now topic.DaemonHealth, before *topic.DaemonHealth) (string, bool) {
	var earlier *topic.HealthState
	if before != nil {
		earlier = &before.State
	}
	text := fmt.Sprintf("%s %s, pid %d, %s", key, change(earlier, now.State), now.PID, now.Version)
	if now.Message != "" {
		text += ": " + now.Message
	}
	return text, now.State == topic.Degraded || now.State == topic.Unhealthy
}
