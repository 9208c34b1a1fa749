package probe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Some clouds know external addresses of a node only.
func TestPodsOnTheHostNetworkHaveAnAddressIfTheNodeHasAny(t *testing.T) {
	external := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.5"}
	internal := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.5"}
	for want, addresses := range map[string][]corev1.NodeAddress{
		"": nil, "203.0.113.5": {external}, "10.0.0.5": {external, internal},
	} {
		s := newTracker(2)
		s.setNode(epoch, corev1.Node{Status: corev1.NodeStatus{Addresses: addresses}})
		if s.nodeIP != want {
			t.Errorf("of %v probes use %q, want %q", addresses, s.nodeIP, want)
		}
	}
}
