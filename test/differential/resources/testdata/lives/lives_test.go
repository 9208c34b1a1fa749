package lives

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"

	"kubelot.dev/compared/cpus"
	"kubelot.dev/compared/invent"
	"kubelot.dev/compared/machine"
	"kubelot.dev/compared/numa"
)

// affinity is Kubernetes' topology manager: it has the affinity of the container that is allocated next.
type affinity struct{ hint topologymanager.TopologyHint }

func (a *affinity) GetAffinity(string, string) topologymanager.TopologyHint { return a.hint }
func (a *affinity) Name() string                                            { return "container" }
func (a *affinity) GetPolicy() topologymanager.Policy {
	return topologymanager.NewBestEffortPolicy(&topologymanager.NUMAInfo{}, topologymanager.PolicyOptions{})
}

// node is the same node under both.
type node struct {
	t        *testing.T
	r        *rand.Rand
	machine  machine.Topology
	affinity *affinity
	policy   cpumanager.Policy
	state    state.State
	product  *cpus.State
	options  map[string]string
	met      map[string]int
}

func newNode(t *testing.T, r *rand.Rand, met map[string]int) *node {
	t.Helper()
	n := &node{t: t, r: r, affinity: &affinity{}, state: state.NewMemoryState(logr.Discard()), met: met}
	n.options = map[string]string{}
	for _, name := range [][]string{
		{},
		{},
		{"full-pcpus-only"},
		{"distribute-cpus-across-numa"},
		{"full-pcpus-only", "distribute-cpus-across-numa"},
		{"prefer-align-cpus-by-uncorecache"},
		{"full-pcpus-only", "prefer-align-cpus-by-uncorecache"},
		{"distribute-cpus-across-cores"},
		{"align-by-socket"},
	}[r.IntN(9)] {
		n.options[name] = "true"
	}
	if r.IntN(3) == 0 {
		n.options["strict-cpu-reservation"] = "true"
	}
	// Kubernetes' algorithm for distribute-cpus-across-numa is wrong from four nodes on; pick_test.go has those.
	most := 8
	if n.options["distribute-cpus-across-numa"] != "" {
		most = 3
	}
	for n.machine = invent.Machine(r, most); len(n.machine.CPUs) < 4 ||
		n.options["align-by-socket"] != "" &&
			len(n.machine.Places(machine.Socket)) > len(n.machine.Places(machine.NUMANode)); {
		n.machine = invent.Machine(r, most)
	}
	reserved := 1 + r.IntN(3)
	if n.options["full-pcpus-only"] != "" {
		// Kubernetes gives away half cores where the reserved CPUs are half cores.
		reserved = n.machine.CPUsPerCore()
	}
	var err error
	n.policy, err = cpumanager.NewStaticPolicy(logr.Discard(), invent.Upstream(n.machine), reserved, cpuset.New(),
		n.affinity, n.options)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.policy.Start(logr.Discard(), n.state); err != nil {
		t.Fatal(err)
	}
	n.product, err = cpus.New(cpus.Config{
		Machine: n.machine, Policy: cpus.PolicyStatic, Options: n.options, AlphaOptions: true, BetaOptions: true,
		TopologyPolicy: numa.PolicyBestEffort, ReservedMilli: int64(reserved)*1000 - 500,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.same("at the start")
	return n
}

// same compares what both have.
func (n *node) same(when string) {
	n.t.Helper()
	if a, b := n.product.Shared(), n.state.GetDefaultCPUSet(); !a.Equals(b) {
		n.t.Fatalf("%s %s are shared; Kubernetes: %s (%v)", when, a, b, n.options)
	}
	got, want := n.product.Entries(), n.state.GetCPUAssignments()
	if len(got) != len(want) {
		n.t.Fatalf("%s: %v; Kubernetes: %v", when, got, want)
	}
	for uid, containers := range want {
		for name, set := range containers {
			if !set.Equals(got[types.UID(uid)][name]) {
				n.t.Fatalf("%s: %v; Kubernetes: %v", when, got, want)
			}
		}
	}
}

func (n *node) container(name string) v1.Container {
	cpu := *resource.NewQuantity(1+n.r.Int64N(int64(len(n.machine.CPUs)/2)), resource.DecimalSI)
	if per := n.machine.CPUsPerCore(); n.options["full-pcpus-only"] != "" && n.r.IntN(4) > 0 {
		cpu.Set((cpu.Value() + int64(per) - 1) / int64(per) * int64(per))
	}
	if n.r.IntN(6) == 0 {
		cpu = resource.MustParse("1500m")
	}
	list := v1.ResourceList{v1.ResourceCPU: cpu, v1.ResourceMemory: resource.MustParse("1Gi")}
	c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
	if n.r.IntN(25) == 0 {
		// Its pod isn't Guaranteed.
		c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: cpu}
	}
	return c
}

func (n *node) pod(i int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("uid", i))}}
	for j := range n.r.IntN(3) {
		c := n.container(fmt.Sprint("init", j))
		if n.r.IntN(3) == 0 {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for j := range 1 + n.r.IntN(2) {
		pod.Spec.Containers = append(pod.Spec.Containers, n.container(fmt.Sprint("app", j)))
	}
	return pod
}

func (n *node) sameHints(what string, got numa.ProviderHints, want map[string][]topologymanager.TopologyHint) {
	n.t.Helper()
	a, b := got[string(v1.ResourceCPU)], want[string(v1.ResourceCPU)]
	same := (got == nil) == (want == nil) && len(a) == len(b)
	for i := 0; same && i < len(a); i++ {
		same = slices.Equal(a[i].Nodes.Nodes(), b[i].NUMANodeAffinity.GetBits()) && a[i].Preferred == b[i].Preferred
	}
	if !same {
		n.t.Fatalf("%s (%v): %v; Kubernetes: %v", what, n.options, got, want)
	}
}

// run allocates a pod container by container. It reports whether all of them were served.
func (n *node) run(pod *v1.Pod) bool {
	n.t.Helper()
	n.sameHints("hints of the pod", n.product.PodHints(pod), n.policy.GetPodTopologyHints(logr.Discard(), n.state, pod))
	reuse := false
	for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
		hints := n.product.Hints(pod, &c)
		// With full-pcpus-only, Kubernetes doesn't count what init containers leave to the pod.
		n.sameHints("hints of "+c.Name, hints, n.policy.GetTopologyHints(logr.Discard(), n.state, pod, &c))
		var nodes numa.Mask
		n.affinity.hint = topologymanager.TopologyHint{}
		if list := hints[string(v1.ResourceCPU)]; len(list) > 0 && n.r.IntN(3) > 0 {
			nodes = list[n.r.IntN(len(list))].Nodes
		} else if n.r.IntN(3) == 0 {
			nodes = numa.NewMask(n.r.IntN(2))
		}
		if nodes != 0 {
			mask, err := bitmask.NewBitMask(nodes.Nodes()...)
			if err != nil {
				n.t.Fatal(err)
			}
			n.affinity.hint.NUMANodeAffinity = mask
		}
		got, err := n.product.Allocate(pod, &c, nodes)
		wantErr := n.policy.Allocate(logr.Discard(), n.state, pod, &c)
		if smt := (cpumanager.SMTAlignmentError{}); reuse && errors.As(wantErr, &smt) && smt.CausedByPhysicalCPUs {
			n.met["reuse that Kubernetes refuses"]++
			return false
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			n.t.Fatalf("%s of %s (%v): %v; Kubernetes: %v", c.Name, pod.UID, n.options, err, wantErr)
		}
		if err != nil {
			n.met["refused"]++
			return false
		}
		if got.Size() > 0 {
			n.met["exclusive"]++
			for name := range n.options {
				n.met[name]++
			}
			reuse = reuse || len(pod.Spec.InitContainers) > 0
		}
		n.same(fmt.Sprintf("after %s of %s", c.Name, pod.UID))
	}
	return true
}

func (n *node) end(pod *v1.Pod) {
	n.t.Helper()
	n.product.Release(pod.UID)
	for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
		if err := n.policy.RemoveContainer(logr.Discard(), n.state, string(pod.UID), c.Name); err != nil {
			n.t.Fatal(err)
		}
	}
	n.same("after the end of " + string(pod.UID))
}

// Pods come and go on nodes of all kinds, and both sides give them the same CPUs, the same hints, and the same
// refusals.
func TestLives(t *testing.T) {
	if err := utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"); err != nil {
		t.Fatal(err)
	}
	met := map[string]int{}
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNode(t, rand.New(rand.NewPCG(seed, 3)), met)
			var pods []*v1.Pod
			for i := range 25 {
				if len(pods) > 0 && n.r.IntN(3) == 0 {
					at := n.r.IntN(len(pods))
					n.end(pods[at])
					pods = slices.Delete(pods, at, at+1)
					continue
				}
				if pod := n.pod(i); n.run(pod) {
					pods = append(pods, pod)
				} else {
					n.end(pod)
				}
			}
			for _, pod := range pods {
				n.end(pod)
			}
			if got := n.product.Shared().Union(n.product.Reserved()); !got.Equals(n.machine.All()) {
				t.Errorf("in the end %s are free of %s", got, n.machine.All())
			}
		})
	}
	for _, what := range []string{
		"exclusive", "refused", "reuse that Kubernetes refuses", "full-pcpus-only", "strict-cpu-reservation",
		"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa", "distribute-cpus-across-cores", "align-by-socket",
	} {
		if met[what] == 0 {
			t.Errorf("no case was %s: %v", what, met)
		}
	}
	t.Log(met)
}
