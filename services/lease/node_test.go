package lease

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func testConfig() *config.Config {
	return &config.Config{
		NodeName: "n1", RegisterNode: true, Kubeconfig: "/nowhere",
		Kubelet: kubeletv1beta1.KubeletConfiguration{
			MaxPods: 110, Port: 10250,
			NodeStatusUpdateFrequency: metav1.Duration{Duration: 10 * time.Second},
			NodeStatusReportFrequency: metav1.Duration{Duration: 5 * time.Minute},
			NodeLeaseDurationSeconds:  40,
		},
	}
}

func testMachine() *topic.Machine {
	return &topic.Machine{
		NumCores: 2, MemoryBytes: 8 << 30, SwapBytes: 1 << 30, HugePages: map[uint64]uint64{2048: 512, 1048576: 0},
		RootFS: topic.Filesystem{Path: "/var/lib/kubelet", CapacityBytes: 100 << 30},
		BootID: "boot-1", MachineID: "machine", KernelVersion: "6.1", OSImage: "Debian",
	}
}

func testRuntime() *topic.Runtime {
	return &topic.Runtime{
		Name: "containerd", Version: "2.4.2", Reachable: true,
		RuntimeReady: topic.RuntimeCondition{Status: true}, NetworkReady: topic.RuntimeCondition{Status: true},
	}
}

// healthy is the health of all vital daemons and of this one at that time.
func healthy(at time.Time) map[string]topic.DaemonHealth {
	h := map[string]topic.DaemonHealth{}
	for _, name := range append([]string{"lease"}, vital...) {
		h[name] = topic.DaemonHealth{State: topic.Healthy, Since: t0, Beat: at}
	}
	return h
}

func goodFacts() Facts {
	return Facts{Machine: testMachine(), Runtime: testRuntime(), Health: healthy(t0), Now: t0}
}

func quantity(t *testing.T, list corev1.ResourceList, name corev1.ResourceName) string {
	t.Helper()
	q, ok := list[name]
	if !ok {
		return "absent"
	}
	return q.String()
}

func TestCapacityAndAllocatable(t *testing.T) {
	c := testConfig()
	c.Kubelet.KubeReserved = map[string]string{"cpu": "200m", "memory": "512Mi", "ephemeral-storage": "1Gi"}
	c.Kubelet.SystemReserved = map[string]string{"memory": "512Mi"}
	c.Kubelet.EvictionHard = map[string]string{"memory.available": "1Gi", "nodefs.available": "10%"}
	c.Kubelet.PodsPerCore = 10
	s := build(c, goodFacts(), nil).Status
	for name, want := range map[corev1.ResourceName][2]string{
		corev1.ResourceCPU:              {"2", "1800m"},
		corev1.ResourceMemory:           {"8Gi", "5Gi"}, // less 1 Gi reserved, 1 Gi eviction threshold and 1 Gi of huge pages
		corev1.ResourcePods:             {"20", "20"},
		corev1.ResourceEphemeralStorage: {"100Gi", "95563022176"}, // 89 GiB, as a share of 32 bits has it
		"hugepages-2Mi":                 {"1Gi", "1Gi"},
		"hugepages-1Gi":                 {"0", "0"},
	} {
		if got := quantity(t, s.Capacity, name); got != want[0] {
			t.Errorf("capacity of %s is %s, want %s", name, got, want[0])
		}
		if got := quantity(t, s.Allocatable, name); got != want[1] {
			t.Errorf("allocatable %s is %s, want %s", name, got, want[1])
		}
	}
}

func TestReservationsLargerThanTheMachineLeaveNothing(t *testing.T) {
	c := testConfig()
	c.Kubelet.KubeReserved = map[string]string{"memory": "64Gi"}
	c.Kubelet.ReservedSystemCPUs = "0-3"
	s := build(c, goodFacts(), nil).Status
	if got := quantity(t, s.Allocatable, corev1.ResourceMemory); got != "0" {
		t.Errorf("allocatable memory %s, want 0", got)
	}
	if got := quantity(t, s.Allocatable, corev1.ResourceCPU); got != "0" {
		t.Errorf("allocatable cpu %s, want 0", got)
	}
}

func TestAWarmNode(t *testing.T) {
	c := testConfig()
	c.ProviderID = "cloud://x"
	c.NodeLabels = map[string]string{
		"team": "blue", "node.kubernetes.io/pool": "a", "topology.kubernetes.io/zone": "z1",
	}
	c.RegisterTaints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	f := goodFacts()
	f.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
		{Type: corev1.NodeHostName, Address: "n1"},
	}
	n := build(c, f, nil)
	for name, want := range map[string]string{
		"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux", "team": "blue",
		"node.kubernetes.io/pool": "a", "topology.kubernetes.io/zone": "z1",
	} {
		if got := n.Labels[name]; got != want {
			t.Errorf("label %s is %q, want %q", name, got, want)
		}
	}
	if n.Spec.ProviderID != "cloud://x" || len(n.Spec.Taints) != 1 || n.Annotations[annotationAttachDetach] != "true" {
		t.Errorf("spec %+v, annotations %v", n.Spec, n.Annotations)
	}
	info := n.Status.NodeInfo
	if info.KubeletVersion != "v1.36.3" || info.ContainerRuntimeVersion != "containerd://2.4.2" || info.Swap == nil ||
		n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("node info %+v", info)
	}
}

func TestReregistrationKeepsWhatOthersChanged(t *testing.T) {
	c := testConfig()
	c.NodeLabels = map[string]string{"team": "blue"}
	c.RegisterTaints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	current := build(c, goodFacts(), nil)
	current.UID = "uid"
	current.Labels["team"] = "green"
	current.Labels["kubernetes.io/os"] = "plan9"
	current.Spec.Taints = nil
	current.Status.Capacity["example.com/gpu"] = resource.MustParse("2")
	current.Status.Allocatable["example.com/gpu"] = resource.MustParse("1")
	current.Status.Capacity["example.com/dongle"] = resource.MustParse("4") // kubectl patch node --subresource=status
	current.Status.Allocatable["example.com/withdrawn"] = resource.MustParse("3")
	current.Status.Capacity["hugepages-64Ki"] = resource.MustParse("64Ki")
	current.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	current.Status.Conditions = append(current.Status.Conditions, corev1.NodeCondition{
		Type:   corev1.NodeNetworkUnavailable,
		Status: corev1.ConditionFalse,
	})
	if n := build(c, goodFacts(), current); quantity(t, n.Status.Allocatable, "example.com/gpu") != "1" {
		t.Error("what was allocatable changes before it is known which resources are devices")
	}
	facts := goodFacts()
	facts.Devices = &topic.NodeResources{}
	n := build(c, facts, current)
	if n.Labels["team"] != "green" || n.Labels["kubernetes.io/os"] != "linux" || len(n.Spec.Taints) != 0 {
		t.Errorf("labels %v, taints %v", n.Labels, n.Spec.Taints)
	}
	for name, want := range map[corev1.ResourceName]string{
		"example.com/gpu": "2", "example.com/dongle": "4", "example.com/withdrawn": "absent",
	} {
		has, free := quantity(t, n.Status.Capacity, name), quantity(t, n.Status.Allocatable, name)
		if has != want || free != want {
			t.Errorf("capacity and allocatable of %s are %s and %s, want %s for both", name, has, free, want)
		}
	}
	if quantity(t, n.Status.Capacity, "hugepages-64Ki") != "absent" {
		t.Error("a page size that is gone is still advertised")
	}
	if len(n.Status.VolumesAttached) != 1 || condition(n.Status.Conditions, corev1.NodeNetworkUnavailable) == nil {
		t.Error("another owner's status was lost")
	}
	if n.Status.Conditions[len(n.Status.Conditions)-1].Type != corev1.NodeReady {
		t.Error("Ready isn't the last condition")
	}
	if differs(n, build(c, goodFacts(), n)) {
		t.Error("building it again changes it")
	}
}

func TestThePatchReplacesAllAddresses(t *testing.T) {
	c := testConfig()
	f := goodFacts()
	address := func(t corev1.NodeAddressType, a string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: t, Address: a}
	}
	f.Addresses = []corev1.NodeAddress{address(corev1.NodeInternalIP, "10.0.0.5"), address(corev1.NodeHostName, "n1")}
	current := build(c, f, nil)
	f.Addresses = []corev1.NodeAddress{address(corev1.NodeInternalIP, "10.0.0.6"), address(corev1.NodeInternalIP,
		"fd00::6"), address(corev1.NodeHostName, "n1")}
	f.Now = t0.Add(time.Minute)
	wanted := build(c, f, current)
	patch, err := diff(current, wanted)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(current)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var n corev1.Node
	if err := json.Unmarshal(after, &n); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.Status.Addresses, f.Addresses) {
		t.Errorf("addresses %v, want %v", n.Status.Addresses, f.Addresses)
	}
	if differs(&n, wanted) {
		t.Error("the patched Node isn't the wanted one")
	}
}

// In a cluster the control plane gives a node the addresses of its pods.
func TestPodCIDRIsOfStandaloneNodes(t *testing.T) {
	c := testConfig()
	c.Kubelet.PodCIDR = "10.2.0.0/24,fd00:2::/64"
	if got := build(c, goodFacts(), nil).Spec; got.PodCIDR != "" || got.PodCIDRs != nil {
		t.Errorf("in a cluster: %q, %q", got.PodCIDR, got.PodCIDRs)
	}
	c.Kubeconfig = ""
	want := []string{"10.2.0.0/24", "fd00:2::/64"}
	if got := build(c, goodFacts(), nil).Spec; got.PodCIDR != want[0] || !slices.Equal(got.PodCIDRs, want) {
		t.Errorf("standalone: %q, %q; want %q", got.PodCIDR, got.PodCIDRs, want)
	}
}
