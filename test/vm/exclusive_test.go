package vm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const exclusivePolicies = `cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: '0'
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
`

// A container that asks for whole CPUs has them alone, without a quota, and its memory from their NUMA node. systemd
// owns the cgroups here: what it makes of them when it reads its units again must be the same. Restarts of the daemons
// change nothing, and without the policies all CPUs are everybody's again.
func TestExclusiveCPUs(t *testing.T) {
	notQuick(t)
	ns := bed.Namespace(t)
	ns.Apply(idle("shared", ""))
	shared := ns.Running("shared")
	t.Run("On", func(t *testing.T) {
		configure(t, exclusivePolicies)
		cpusOf(t, shared, "0-1")
		ns := ns.In(t)
		ns.Apply(idle("alone", "limits: {cpu: 1, memory: 64Mi}"))
		alone := ns.Running("alone")
		check := func() {
			t.Helper()
			cpusOf(t, alone, "1")
			cpusOf(t, shared, "0")
			cgroupHas(t, containerCgroup(alone), "cpuset.mems cpu.max", "0 max 100000")
			cgroupHas(t, sliceOf(alone), "cpu.max", "max 100000")
		}
		check()
		in(t, "systemctl daemon-reload")
		check()
		in(t, "systemctl restart kubelot-resource.service kubelot-podsync.service")
		if err := node.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		check()
		ns.Delete("alone", 1)
		ns.Gone(alone)
		cpusOf(t, shared, "0-1")
	})
	cpusOf(t, shared, "0-1")
	if got := in(t, "cat /var/lib/kubelet/cpu_manager_state"); !strings.Contains(got, `"policyName":"none"`) {
		t.Errorf("the state of the CPU manager is %s", got)
	}
}

// cpusOf waits until the pod's container may use the CPUs, by its cgroup and by the kernel.
func cpusOf(t *testing.T, p *corev1.Pod, cpus string) {
	t.Helper()
	cgroupHas(t, containerCgroup(p), "cpuset.cpus cpuset.cpus.effective", cpus+" "+cpus)
}
