package lives

import (
	"maps"
	"testing"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/google/cadvisor/utils/sysinfo"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

	"kubelot.dev/compared/invent"
	"kubelot.dev/compared/machine"
)

// Both read the same of the machine that the test runs on.
func TestMachineHere(t *testing.T) {
	nodes, cores, err := sysinfo.GetNodesInfo(sysfs.NewRealSysFs())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := topology.Discover(logr.Discard(), &cadvisorapi.MachineInfo{Topology: nodes, NumCores: cores})
	if err != nil {
		t.Fatal(err)
	}
	m, err := machine.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	if want := invent.Product(theirs); !maps.Equal(m.CPUs, want.CPUs) {
		t.Errorf("CPUs %v; cAdvisor: %v", m.CPUs, want.CPUs)
	}
	if len(m.Nodes) != len(nodes) {
		t.Fatalf("nodes %v; cAdvisor: %v", m.Nodes, nodes)
	}
	for i, n := range nodes {
		if m.Nodes[i].ID != n.Id || m.Nodes[i].MemoryBytes != n.Memory || len(m.Nodes[i].HugePages) != len(n.HugePages) {
			t.Errorf("node %+v; cAdvisor: %+v", m.Nodes[i], n)
		}
		for j, d := range n.Distances {
			if m.Nodes[i].Distances[nodes[j].Id] != d {
				t.Errorf("distances %v; cAdvisor: %v", m.Nodes[i].Distances, n.Distances)
			}
		}
		for _, h := range n.HugePages {
			if m.Nodes[i].HugePages[h.PageSize] != h.NumPages {
				t.Errorf("huge pages %v; cAdvisor: %v", m.Nodes[i].HugePages, n.HugePages)
			}
		}
	}
}
