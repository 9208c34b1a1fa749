package tap

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

func TestAllocation(t *testing.T) {
	waiting := &topic.Allocation{Phase: topic.Allocating}
	for _, c := range []struct {
		now    topic.Allocation
		before *topic.Allocation
		want   string
		urgent bool
	}{
		{*waiting, nil, "allocating", false},
		{topic.Allocation{Phase: topic.Allocated}, waiting, "allocating → allocated", false},
		{
			topic.Allocation{Phase: topic.AllocationRefused, Reason: "UnexpectedAdmissionError", Message: "no device"},
			waiting,
			"allocating → refused: UnexpectedAdmissionError no device", true,
		},
		{
			topic.Allocation{Phase: topic.Allocated, Containers: map[string]topic.ContainerAllocation{
				"b": {CPUs: "2-3", MemoryNodes: "0", Env: []topic.EnvVar{{Name: "A", Value: secret}}},
				"a": {Devices: []topic.AllocatedDevice{
					{Resource: "x.org/gpu", ID: "g0", Health: corev1.ResourceHealthStatusHealthy}, {Resource: "x.org/gpu", ID: "g1"},
				}},
				"c": {PreStart: true},
			}},
			nil,
			"allocated, a has x.org/gpu g0 and x.org/gpu g1, b has CPUs 2-3 and memory of node 0", false,
		},
		{
			topic.Allocation{Phase: topic.Allocated, Containers: map[string]topic.ContainerAllocation{
				"a": {Devices: []topic.AllocatedDevice{
					{Resource: "x.org/gpu", ID: "g0", Health: corev1.ResourceHealthStatusUnhealthy, HealthMessage: "hot"},
				}},
			}},
			nil,
			"allocated, a has x.org/gpu g0 (unhealthy hot)", true,
		},
	} {
		if got, urgent := describeAllocation("", c.now, c.before); got != c.want || urgent != c.urgent {
			t.Errorf("%q, %v; want %q, %v", got, urgent, c.want, c.urgent)
		}
	}
}

func TestResources(t *testing.T) {
	for _, c := range []struct {
		now  topic.NodeResources
		want string
	}{
		{topic.NodeResources{}, "no devices of plugins, and no exclusive CPUs"},
		{
			topic.NodeResources{
				Devices:    map[corev1.ResourceName]topic.DeviceCount{"b": {Capacity: 2, Allocatable: 1}, "a": {Capacity: 1}},
				Gone:       []corev1.ResourceName{"c"},
				SharedCPUs: "0-1",
			},
			"a: 0 of 1 allocatable, b: 1 of 2 allocatable, 1 resource gone, containers share the CPUs 0-1",
		},
	} {
		if got, urgent := describeResources("", c.now, nil); got != c.want || urgent {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
