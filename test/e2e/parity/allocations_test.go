package parity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// aligned has containers get CPUs and memory of their own, all from one NUMA node. What is reserved of the memory is
// what the test bed's eviction threshold keeps free.
const aligned = `reservedSystemCPUs: "0"
cpuManagerPolicy: static
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
topologyManagerPolicy: single-numa-node
`

const (
	// toyDevice is what the plugin of this test has four of, and sampleDevice what Kubernetes' sample has two of.
	toyDevice, sampleDevice = "toys.test/allotted", "example.com/resource"

	toyDriver = "allotted.test"
)

const toyTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: toy}
spec:
  spec:
    devices:
      requests: [{name: one, exactly: {deviceClassName: ` + toyDriver + `}}]
---
`

// allotted is a pod whose container has these resources; more is added to its spec.
func allotted(name, resources, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
		app(forever+", resources: {"+resources+"}") + more
}

// toyPod is a pod whose container has a device of the driver.
func toyPod(name string) string {
	return allotted(name, "claims: [{name: toy}]", "  resourceClaims: [{name: toy, resourceClaimTemplateName: toy}]\n")
}

// allotment is what a pod has for itself by PodResources, where its container may run, and which container that is.
type allotment struct {
	container, devices, cpus, memory, claims, cgroup string

	restarts int32
}

// cgroupOf shows the files of the container's cgroup that say where it may run, and what the kernel makes of them.
const cgroupOf = "cd /sys/fs/cgroup; grep -s . cpuset.cpus cpuset.mems cpuset/cpuset.cpus cpuset/cpuset.mems; " +
	"grep _allowed_list /proc/1/status"

// allotments are a node's.
type allotments struct {
	t      *testing.T
	bed    *kit.Bed
	ns     *kit.Namespace
	plugin *kit.DevicePlugin
	// was is what the pods have.
	was map[string]allotment
	// begun is when the agent was started.
	begun time.Time
}

// of is what the pod has now.
func (a *allotments) of(pod string) (has allotment, err error) {
	a.t.Helper()
	p := a.ns.Running(pod)
	status := kit.Status(p, "app")
	has.container, has.restarts = status.ContainerID, status.RestartCount
	for _, c := range a.ns.PodResources(pod).GetContainers() {
		var devices []string
		for _, d := range c.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				devices = append(devices, d.GetResourceName()+"="+id)
			}
		}
		slices.Sort(devices)
		has.devices = strings.Join(devices, " ")
		has.cpus = strings.Trim(fmt.Sprint(slices.Sorted(slices.Values(c.GetCpuIds()))), "[]")
		for _, m := range c.GetMemory() {
			has.memory += fmt.Sprintf("%s: %d of %v ", m.GetMemoryType(), m.GetSize(), m.GetTopology().GetNodes())
		}
		for _, claim := range c.GetDynamicResources() {
			has.claims += fmt.Sprintln(claim.GetClaimName(), claim.GetClaimResources())
		}
	}
	has.cgroup, err = a.ns.Try(p, "app", cgroupOf)
	return has, err
}

// begin has a pod begin, and returns what it has. No device may be another's.
func (a *allotments) begin(name, manifest string) allotment {
	a.t.Helper()
	a.ns.Apply(manifest)
	has, err := a.of(name)
	if err != nil {
		a.t.Fatal(err)
	}
	for other, its := range a.was {
		for device := range strings.FieldsSeq(its.devices) {
			if slices.Contains(strings.Fields(has.devices), device) {
				a.t.Errorf("%s and %s both have %s", name, other, device)
			}
		}
	}
	a.was[name] = has
	return has
}

// end deletes a pod.
func (a *allotments) end(name string) {
	a.t.Helper()
	p := a.ns.Running(name)
	a.ns.Delete(name, 1)
	a.ns.Gone(p)
	delete(a.was, name)
}

// handTo has another agent go on, by which every pod has what it had. It waits for that: the plugins and the driver
// have to come back first. A container that was started again would have another ID for good.
func (a *allotments) handTo(agent node.Agent) {
	a.t.Helper()
	// The sample plugin begins anew ten seconds after it has seen an agent's socket. It fails if there is another by then.
	time.Sleep(time.Until(a.begun.Add(15 * time.Second)))
	a.bed.Node.Stop()
	registered := a.plugin.Registrations()
	a.begun = time.Now()
	if err := a.bed.StartNode(a.t.Context(), agent); err != nil {
		a.t.Fatal(err)
	}
	kit.Eventually(a.t, "the plugin's registration", func() error {
		if n := a.plugin.Registrations(); n <= registered {
			return fmt.Errorf("it has registered %d times", n)
		}
		return nil
	})
	a.advertised()
	for name, was := range a.was {
		kit.Eventually(a.t, fmt.Sprintf("what %s has by %s", name, agent), func() error {
			is, err := a.of(name)
			if err == nil && is != was {
				err = fmt.Errorf("it has %+v, and had %+v", is, was)
			}
			return err
		})
	}
}

// advertised waits until the Node has the devices of both plugins.
func (a *allotments) advertised() {
	a.t.Helper()
	kit.Eventually(a.t, "the Node's devices", func() error {
		can := a.bed.KubeNode(a.t).Status.Allocatable
		toys, samples := can[toyDevice], can[sampleDevice]
		if toys.Value() != 4 || samples.Value() != 2 {
			return fmt.Errorf("there are %s %s and %s %s", toys.String(), toyDevice, samples.String(), sampleDevice)
		}
		return nil
	})
}

// startAllotting starts the node with the kubelet, two device plugins and a driver of claims.
func startAllotting(t *testing.T) (*allotments, *kit.DRADriver) {
	t.Helper()
	bed := kit.StartWithoutNode(t)
	bed.Config = aligned
	driver := bed.DRADriver(t, toyDriver, "toy-0", "toy-1")
	startWithDevices(t, bed)
	// A kubelet that starts removes all ResourceSlices of its node. What the driver makes before that would be lost.
	kit.Eventually(t, "the kubelet to remove the driver's ResourceSlice", func() error {
		list, err := bed.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("it is there")
		}
		return err
	})
	t.Cleanup(driver.Serve())
	a := &allotments{t: t, bed: bed, ns: bed.Namespace(t), was: map[string]allotment{}}
	a.plugin = bed.DevicePlugin(t, toyDevice, "toy-0", "toy-1", "toy-2", "toy-3")
	a.plugin.Serve()
	sample, err := bed.Tools.EnsureSampleDevicePlugin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what its devices are
		for _, device := range []string{"/tmp/Dev-1", "/tmp/Dev-2"} {
			_ = os.Remove(device)
		}
	})
	launch(t, sample)
	a.advertised()
	return a, driver
}

// TestAllocationsTakenOver has pods with devices of plugins, CPUs and memory of their own, and a claim go from the
// kubelet to kubelot and back. Nobody loses anything, no container is started again, and each agent knows what the
// other has given away and taken back.
func TestAllocationsTakenOver(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU, which is the system's")
	}
	a, driver := startAllotting(t)
	const ofItsOwn = "limits: {cpu: 1, memory: 20Mi, " + toyDevice + ": 2}"
	const ofBoth = "limits: {" + toyDevice + ": 1, " + sampleDevice + ": 1}"
	alone := a.begin("alone", allotted("alone", ofItsOwn, ""))
	a.begin("devices", allotted("devices", ofBoth, ""))
	claims := a.begin("claims", toyTemplate+toyPod("claims"))
	if alone.cpus == "" || alone.memory == "" || !strings.Contains(claims.claims, "toy-") {
		t.Fatalf("the kubelet has given %+v and %+v", alone, claims)
	}
	claimOf := func(pod string) string {
		return a.ns.Name + "/" + *a.ns.Running(pod).Status.ResourceClaimStatuses[0].ResourceClaimName
	}
	claim := claimOf("claims")
	asked := func(when string, want ...string) {
		t.Helper()
		if calls := driver.Calls(); !slices.Equal(calls, want) {
			t.Errorf("%s the driver was asked %q, want %q", when, calls, want)
		}
	}
	asked("by the kubelet", "prepare "+claim)

	// The pod's sandbox is up, so what the kubelet has had prepared for it is.
	a.handTo(node.Kubelot)
	asked("after the takeover", "prepare "+claim)
	a.begin("came", allotted("came", ofBoth, ""))
	a.end("alone")
	// What is left of the CPUs, the memory and the plugin's devices is what that pod had.
	next := a.begin("next", allotted("next", ofItsOwn, ""))
	if next.cpus != alone.cpus || next.memory != alone.memory || next.devices != alone.devices {
		t.Errorf("what %+v had is free, and the next pod has %+v", alone, next)
	}

	a.handTo(node.Kubelet)
	asked("after the way back", "prepare "+claim)
	// The bus still has kubelot's last word, which knows nothing of the pods that came meanwhile.
	a.end("next")
	a.begin("late", allotted("late", ofItsOwn, ""))
	a.begin("later", toyPod("later"))
	later := claimOf("later")
	a.handTo(node.Kubelot)
	a.end("came") // and by now kubelot knows all pods
	asked("after the second takeover", "prepare "+claim, "prepare "+later)

	a.handTo(node.Kubelet)
	for _, pod := range []string{"claims", "later"} {
		given := "unprepare " + claimOf(pod)
		a.end(pod)
		if calls := driver.Calls(); calls[len(calls)-1] != given {
			t.Errorf("when its pod is gone the driver was asked %q, want %q", calls, given)
		}
	}
	state, err := os.ReadFile(filepath.Join(a.bed.Node.RootDir, "dra_manager_state"))
	if err != nil || strings.Contains(string(state), strings.TrimPrefix(claim, a.ns.Name+"/")) {
		t.Errorf("the kubelet's claims are %s, %v", state, err)
	}
}
