package probe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// A container may listen on status.podIP only. In a cluster of both families that is of the node's family.
func TestProbesConnectToThePodIPOfTheStatus(t *testing.T) {
	both := []string{"10.1.2.3", "fd00::3"}
	for _, c := range []struct {
		ips          []string
		nodeIP, want string
	}{
		{both, "10.0.0.5", "10.1.2.3"},
		{both, "fd00:1::5", "fd00::3"},
		{both, "", "10.1.2.3"},
		{[]string{"fd00::3", "10.1.2.3"}, "10.0.0.5", "10.1.2.3"},
		{[]string{"fd00::3"}, "10.0.0.5", "fd00::3"},
		{nil, "10.0.0.5", ""},
	} {
		seen := topic.PodObservation{Sandboxes: []topic.Sandbox{{ID: "s0", IPs: c.ips}}}
		if got := address(&corev1.Pod{}, seen, "s0", c.nodeIP); got != c.want {
			t.Errorf("of %v on the node %s: %q, want %q", c.ips, c.nodeIP, got, c.want)
		}
	}
}
