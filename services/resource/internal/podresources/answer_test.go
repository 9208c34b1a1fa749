package podresources

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// TestTopology has what a client expects of a device: an entry for each of its NUMA nodes, or one without topology.
func TestTopology(t *testing.T) {
	got := devices([]Device{
		device("b.com/gpu", 1), device("a.com/nic", 2, 3, 0), device("a.com/nic", 1, 1),
	})
	want := []*v1.ContainerDevices{
		{ResourceName: "a.com/nic", DeviceIds: []string{"dev1"}, Topology: topology(1)},
		{ResourceName: "a.com/nic", DeviceIds: []string{"dev2"}, Topology: topology(0)},
		{ResourceName: "a.com/nic", DeviceIds: []string{"dev2"}, Topology: topology(3)},
		{ResourceName: "b.com/gpu", DeviceIds: []string{"dev1"}},
	}
	equal(t, &v1.ContainerResources{Devices: got}, &v1.ContainerResources{Devices: want})
	if got[3].Topology != nil {
		t.Error("a device without NUMA nodes has a topology")
	}
	if m := memory([]Memory{{Type: "memory", Size: 1}}); m[0].Topology == nil {
		t.Error("memory without NUMA nodes has no topology; the kubelet's always has")
	}
}

// equal compares two messages.
func equal(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", protojson.Format(got), protojson.Format(want))
	}
}

// TestAnswersDoNotDependOnTheOrder shuffles what the source has, and holds that the answer stays, that it has all of
// it once, and that the source's own lists stay as they are.
func TestAnswersDoNotDependOnTheOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := pod("default", "web", "side-a", "app-b")
		p.Containers["side-a"], p.Containers["app-b"] = resources(r), resources(r)
		first := podAnswer(&p)
		alpha := alphaAnswer(&p)
		for name, has := range p.Containers {
			shuffle(r, has.Devices)
			shuffle(r, has.CPUs)
			shuffle(r, has.Memory)
			shuffle(r, has.Claims)
			for _, c := range has.Claims {
				shuffle(r, c.Devices)
			}
			for _, d := range has.Devices {
				shuffle(r, d.NUMANodes)
			}
			for _, m := range has.Memory {
				shuffle(r, m.NUMANodes)
			}
			p.Containers[name] = has
		}
		before := fmt.Sprint(p.Containers)
		equal(t, podAnswer(&p), first)
		equal(t, alphaAnswer(&p), alpha)
		if after := fmt.Sprint(p.Containers); after != before {
			t.Errorf("the source's lists were changed from %s to %s", before, after)
		}
		for i, name := range []string{"side-a", "app-b"} {
			whole(t, first.Containers[i], p.Containers[name])
			if got, want := len(alpha.Containers[i].Devices), len(p.Containers[name].Devices); got != want {
				t.Errorf("%s has %d devices in v1alpha1, want %d", name, got, want)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// whole compares the numbers of things in the answer with what the container has.
func whole(t *testing.T, answer *v1.ContainerResources, has Resources) {
	t.Helper()
	var entries, claimed int
	for _, d := range has.Devices {
		entries += max(len(d.NUMANodes), 1)
	}
	for _, c := range has.Claims {
		claimed += len(c.Devices)
	}
	var shown int
	for _, c := range answer.DynamicResources {
		shown += len(c.ClaimResources)
	}
	got := []int{
		len(answer.Devices), len(answer.CpuIds), len(answer.Memory), len(answer.DynamicResources), shown,
	}
	if want := []int{entries, len(has.CPUs), len(has.Memory), len(has.Claims), claimed}; !slices.Equal(got, want) {
		t.Errorf("%s has %v devices, CPUs, memory, claims and their devices, want %v", answer.Name, got, want)
	}
	if !slices.IsSorted(answer.CpuIds) {
		t.Errorf("the CPUs %v aren't in order", answer.CpuIds)
	}
}

// resources are some of all kinds; no two of a kind are equal.
func resources(r *rand.Rand) Resources {
	nodes := func() []int { return r.Perm(4)[:r.IntN(4)] }
	has := Resources{CPUs: r.Perm(64)[:r.IntN(8)]}
	for id := range r.IntN(6) {
		has.Devices = append(has.Devices, device(fmt.Sprintf("example.com/r%d", r.IntN(3)), id, nodes()...))
	}
	for i := range r.IntN(4) {
		m := Memory{Type: fmt.Sprintf("hugepages-%dMi", i), Size: r.Uint64(), NUMANodes: nodes()}
		has.Memory = append(has.Memory, m)
	}
	for i := range r.IntN(4) {
		c := Claim{Namespace: "default", Name: fmt.Sprintf("claim%d", i)}
		for j := range r.IntN(4) {
			d := ClaimDevice{Driver: fmt.Sprintf("d%d", r.IntN(2)), Pool: "p", Device: "shared"}
			share := fmt.Sprintf("share%d", j)
			d.ShareID = &share
			for k := range r.IntN(3) {
				d.CDI = append(d.CDI, fmt.Sprintf("v.com/c=%d-%d", j, k))
			}
			c.Devices = append(c.Devices, d)
		}
		has.Claims = append(has.Claims, c)
	}
	return has
}

func shuffle[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}
