package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/resource/internal/machine"
)

// recorded keeps the last that was said of the health.
type recorded struct {
	state   topic.HealthState
	message string
}

func (r *recorded) Set(state topic.HealthState, message string) { r.state, r.message = state, message }

// A configuration with which the kubelet doesn't start is healed: one manager does without what is wrong, the others
// work, and the daemon's health says it as long as it runs.
func TestAWrongConfigurationIsHealed(t *testing.T) {
	topology := machine.Topology{
		CPUs:  map[int]machine.CPU{0: {}, 1: {Core: 1}, 2: {Core: 2}},
		Nodes: []machine.Node{{ID: 0, MemoryBytes: 8 << 30}},
	}
	for name, c := range map[string]struct {
		edit                  func(*kubeletv1beta1.KubeletConfiguration)
		cpu, memory, topology string
		state                 topic.HealthState
		says                  string
	}{
		"nothing is wrong": {
			edit: func(*kubeletv1beta1.KubeletConfiguration) {},
			cpu:  "static", memory: "Static", topology: "restricted", state: topic.Healthy,
		},
		"a reserved CPU is offline": {
			edit: func(k *kubeletv1beta1.KubeletConfiguration) { k.ReservedSystemCPUs = "0,3" },
			cpu:  "static", memory: "Static", topology: "restricted", state: topic.Degraded,
			says: "CPU manager: reservedSystemCPUs has the CPUs 3",
		},
		"the list of CPUs is none": {
			edit: func(k *kubeletv1beta1.KubeletConfiguration) { k.ReservedSystemCPUs = "a" },
			cpu:  "static", memory: "Static", topology: "restricted", state: topic.Unhealthy, says: "reservedSystemCPUs",
		},
		"memory does not add up": {
			edit: func(k *kubeletv1beta1.KubeletConfiguration) { k.SystemReserved = map[string]string{"memory": "2Gi"} },
			cpu:  "static", memory: "Static", topology: "restricted", state: topic.Unhealthy,
			says: "memory manager: the total amount",
		},
		"an option is unknown": {
			edit: func(k *kubeletv1beta1.KubeletConfiguration) {
				k.TopologyManagerPolicyOptions = map[string]string{"x": "1"}
			},
			cpu: "static", memory: "Static", topology: "restricted", state: topic.Unhealthy,
			says: `topology manager: unknown Topology Manager Policy option: "x"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &config.Config{Kubelet: kubeletv1beta1.KubeletConfiguration{
				CPUManagerPolicy: "static", ReservedSystemCPUs: "0", MemoryManagerPolicy: "Static",
				TopologyManagerPolicy: "restricted", TopologyManagerScope: "container",
				SystemReserved: map[string]string{"memory": "1Gi"},
				ReservedMemory: []kubeletv1beta1.MemoryReservation{{
					Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
				}},
			}}
			c.edit(&cfg.Kubelet)
			h, faults := newHoldings(cfg, topology)
			if h.cpus.Policy() != c.cpu || h.memory.Policy() != c.memory || h.policy.Name() != c.topology {
				t.Errorf("policies %s, %s, %s", h.cpus.Policy(), h.memory.Policy(), h.policy.Name())
			}
			said := &recorded{}
			health := withFaults(said, faults)
			health.Set(topic.Healthy, "")
			if said.state != c.state || !strings.Contains(said.message, c.says) {
				t.Errorf("its health is %s %q", said.state, said.message)
			}
			health.Set(topic.Degraded, "the disk is full")
			worst := topic.Degraded
			if c.state == topic.Unhealthy {
				worst = topic.Unhealthy
			}
			if said.state != worst || !strings.Contains(said.message, c.says) ||
				!strings.Contains(said.message, "the disk is full") {
				t.Errorf("with something else its health is %s %q", said.state, said.message)
			}
		})
	}
}
