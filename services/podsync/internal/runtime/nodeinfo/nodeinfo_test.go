package nodeinfo

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
)

func newFacts(t *testing.T, cfg *config.Config) *Info {
	t.Helper()
	f, err := New(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAResolverConfigurationThatIsAwayIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	cfg := &config.Config{}
	cfg.Kubelet.ResolverConfig = &path
	write := func() {
		if err := os.WriteFile(path, []byte("nameserver 192.0.2.53\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	f := newFacts(t, cfg)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if node, err := f.DNS(); err == nil {
		t.Errorf("facts %+v without the file, want an error", node)
	}
	write()
	if node, err := f.DNS(); err != nil || node.Resolv == nil || len(node.Resolv.Servers) != 1 {
		t.Errorf("facts %+v, %v once the file is back", node, err)
	}
}

func TestUserNamespacesAreTheHandlersToGive(t *testing.T) {
	f, yes := newFacts(t, &config.Config{}), true
	if ok, err := f.UserNamespaces(""); ok || err == nil {
		t.Errorf("%v, %v before the runtime is known", ok, err)
	}
	f.SetRuntime(&topic.Runtime{Handlers: []corev1.NodeRuntimeHandler{
		{Name: "", Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &yes}}, {Name: "old"},
	}})
	for handler, want := range map[string]struct{ ok, fails bool }{
		"": {true, false}, "old": {false, false},
		"unknown": {false, true},
	} {
		if ok, err := f.UserNamespaces(handler); ok != want.ok || (err != nil) != want.fails {
			t.Errorf("handler %q: %v, %v", handler, ok, err)
		}
	}
}

func TestTheCrashBackOffIsTheNodesToCap(t *testing.T) {
	cfg := &config.Config{}
	cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 30 * time.Second}
	if most := newFacts(t, cfg).MaxBackoff(); most != 30*time.Second {
		t.Errorf("%s, want 30 s", most)
	}
}

func TestMemoryQoSIsOfMachinesWithCgroupV2(t *testing.T) {
	factor := 0.8
	cfg := &config.Config{}
	k := &cfg.Kubelet
	k.MemoryThrottlingFactor, k.MemoryReservationPolicy = &factor, "TieredReservation"
	k.KubeReserved, k.SystemReserved = map[string]string{"memory": "1Gi"}, map[string]string{"memory": "512Mi"}
	on := criconfig.MemoryQoS{On: true, Tiered: true, Throttling: 0.8, Allocatable: 6<<30 + 512<<20}
	for _, c := range []struct {
		gate    bool
		version int
		memory  uint64
		want    criconfig.MemoryQoS
	}{
		{false, 2, 8 << 30, criconfig.MemoryQoS{}},
		{true, 1, 8 << 30, criconfig.MemoryQoS{}},
		{true, 2, 8 << 30, on},
		{true, 2, 1 << 30, criconfig.MemoryQoS{On: true, Tiered: true, Throttling: 0.8}},
	} {
		k.FeatureGates = map[string]bool{"MemoryQoS": c.gate}
		f := newFacts(t, cfg)
		f.SetMachine(&topic.Machine{CgroupVersion: c.version, MemoryBytes: c.memory})
		if got := f.CRI().MemoryQoS; got != c.want {
			t.Errorf("gate %t, cgroup v%d, %d bytes: %+v, want %+v", c.gate, c.version, c.memory, got, c.want)
		}
	}
}

func TestQuotaWithExclusiveCPUs(t *testing.T) {
	cfg := &config.Config{}
	for gate, want := range map[string]bool{"": false, "DisableCPUQuotaWithExclusiveCPUs": true} {
		cfg.Kubelet.FeatureGates = map[string]bool{gate: false}
		if got := newFacts(t, cfg).CRI().QuotaWithExclusiveCPUs; got != want {
			t.Errorf("gate %q off: %t, want %t", gate, got, want)
		}
	}
}

// The API server refuses the status of a pod that has two addresses of one family. A cloud may name as many of the node
// as it has network interfaces.
func TestPodsHaveOneAddressOfTheNodeOfEachFamily(t *testing.T) {
	f := newFacts(t, &config.Config{})
	internal := func(ip string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
	}
	external := func(ip string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip}
	}
	for _, c := range []struct{ has, want []string }{
		{nil, nil},
		{[]string{"10.0.0.5", "10.1.0.5"}, []string{"10.0.0.5"}},
		{[]string{"10.0.0.5", "10.1.0.5", "fd00::5", "fd01::5"}, []string{"10.0.0.5", "fd00::5"}},
		{[]string{"fd00::5", "10.0.0.5"}, []string{"fd00::5", "10.0.0.5"}},
	} {
		n := &corev1.Node{}
		for _, ip := range c.has {
			n.Status.Addresses = append(n.Status.Addresses, internal(ip))
		}
		f.SetNode(n)
		if got := f.HostIPs(); !slices.Equal(got, c.want) {
			t.Errorf("of the internal addresses %v pods have %v, want %v", c.has, got, c.want)
		}
	}
	n := &corev1.Node{}
	n.Status.Addresses = []corev1.NodeAddress{external("203.0.113.5"), external("2001:db8::5")}
	f.SetNode(n)
	if got, want := f.HostIPs(), []string{"203.0.113.5", "2001:db8::5"}; !slices.Equal(got, want) {
		t.Errorf("without an internal address pods have %v, want %v", got, want)
	}
	n = n.DeepCopy()
	n.Status.Addresses = append(n.Status.Addresses, internal("10.0.0.5"))
	f.SetNode(n)
	if got, want := f.HostIPs(), []string{"10.0.0.5", "2001:db8::5"}; !slices.Equal(got, want) {
		t.Errorf("with an internal address pods have %v, want %v", got, want)
	}
}

// The Node's status may be old or written by others. Pods aren't held to it.
func TestTheCapacityIsTheMachines(t *testing.T) {
	list := func(cpu, memory, pages2M, pages1G, storage string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{
			"cpu": cpu, "memory": memory, "hugepages-2Mi": pages2M, "hugepages-1Gi": pages1G, "ephemeral-storage": storage,
		} {
			if text != "" {
				all[name] = resource.MustParse(text)
			}
		}
		return all
	}
	machine := &topic.Machine{
		NumCores: 4, MemoryBytes: 8 << 30, HugePages: map[uint64]uint64{2048: 16}, PIDLimit: 4000, CgroupVersion: 2,
	}
	for name, c := range map[string]struct{ node, want corev1.ResourceList }{
		"less":       {list("2", "1Gi", "0", "", "5Gi"), list("4", "8Gi", "32Mi", "", "5Gi")},
		"more":       {list("64", "1Ti", "1Gi", "2Gi", "5Gi"), list("4", "8Gi", "32Mi", "", "5Gi")},
		"new object": {nil, list("4", "8Gi", "32Mi", "", "")},
	} {
		f := newFacts(t, &config.Config{})
		f.SetNode(&corev1.Node{Status: corev1.NodeStatus{Capacity: c.node}})
		if got := f.Capacity(); got != nil {
			t.Errorf("%s: %v before the machine is known", name, got)
		}
		f.SetMachine(machine)
		c.want["pid"] = resource.MustParse("4000")
		if got := f.Capacity(); !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
