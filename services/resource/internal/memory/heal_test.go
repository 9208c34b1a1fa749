package memory

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/services/resource/internal/fault"
)

// What the kubelet doesn't start with is healed, and what was done is said.
func TestHeal(t *testing.T) {
	on := func(node int32, size string) kubeletv1beta1.MemoryReservation {
		return kubeletv1beta1.MemoryReservation{
			NumaNode: node, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(size)},
		}
	}
	for name, c := range map[string]struct {
		policy   string
		reserved []kubeletv1beta1.MemoryReservation
		held     string
		want     string // the policy
		kept     [2]uint64
		text     string
	}{
		"nothing is wrong": {
			policy: PolicyStatic, reserved: []kubeletv1beta1.MemoryReservation{on(0, "1Gi")}, held: "1Gi", want: PolicyStatic,
			kept: [2]uint64{gi, 0},
		},
		"the sum is another": {
			policy: PolicyStatic, reserved: []kubeletv1beta1.MemoryReservation{on(0, "1Gi"), on(1, "1Gi")}, held: "3Gi",
			want: PolicyStatic, kept: [2]uint64{gi, gi}, text: `is not equal to the value "3Gi"`,
		},
		"a node isn't there": {
			policy: PolicyStatic, reserved: []kubeletv1beta1.MemoryReservation{on(7, "1Gi"), on(1, "1Gi")}, held: "2Gi",
			want: PolicyStatic, kept: [2]uint64{0, gi}, text: "references a NUMA node 7",
		},
		"nothing is reserved": {
			policy: PolicyStatic, held: "2Gi", want: PolicyStatic, kept: [2]uint64{2 * gi, 0},
			text: "2Gi, as by Node Allocatable, is reserved on one NUMA node",
		},
		"more than there is": {
			policy: PolicyStatic, reserved: []kubeletv1beta1.MemoryReservation{on(0, "1Ti")}, held: "1Ti", want: PolicyNone,
			text: "no container gets memory of its own",
		},
		"the policy is unknown": {
			policy: "static", held: "1Gi", want: PolicyNone, text: "no container gets memory of its own",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, faults := Heal(Config{
				Policy: c.policy, Nodes: []Node{node4(0), node4(1)}, Reserved: c.reserved,
				NodeAllocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.held)},
			})
			text, severe := fault.Text(faults)
			if s.Policy() != c.want || !strings.Contains(text, c.text) || severe != (c.text != "") {
				t.Errorf("policy %s, %q, severe %t", s.Policy(), text, severe)
			}
			for id, n := range s.Snapshot().Nodes {
				if got := n.Memory[corev1.ResourceMemory].SystemReserved; got != c.kept[id] {
					t.Errorf("on node %d %d bytes are reserved, want %d", id, got, c.kept[id])
				}
			}
		})
	}
}
