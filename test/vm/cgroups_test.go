package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The cgroups of all pods, and of the QoS classes that have one of their own.
const (
	kubepods   = "/sys/fs/cgroup/kubepods.slice"
	burstable  = kubepods + "/kubepods-burstable.slice"
	bestEffort = kubepods + "/kubepods-besteffort.slice"
)

// sliceOf is the pod's cgroup.
func sliceOf(p *corev1.Pod) string {
	uid := strings.ReplaceAll(string(p.UID), "-", "_")
	switch p.Status.QOSClass {
	case corev1.PodQOSBurstable:
		return burstable + "/kubepods-burstable-pod" + uid + ".slice"
	case corev1.PodQOSBestEffort:
		return bestEffort + "/kubepods-besteffort-pod" + uid + ".slice"
	default:
		return kubepods + "/kubepods-pod" + uid + ".slice"
	}
}

// containerCgroup is the cgroup of the pod's first container.
func containerCgroup(p *corev1.Pod) string {
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return sliceOf(p) + "/cri-containerd-" + id + ".scope"
}

// cgroupHas waits until the files of the cgroup have the values.
func cgroupHas(t testing.TB, dir, files, want string) {
	t.Helper()
	eventually(t, files+" of "+dir, func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "cd "+dir+" && echo $(cat "+files+")")
		if got := strings.TrimSpace(out); err == nil && got != want {
			err = fmt.Errorf("they are %q, want %q", got, want)
		}
		return err
	})
}

// idle is a pod that does nothing.
func idle(name, resources string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "busybox:1.36", command: %s, resources: {%s}}]
`, name, forever, resources)
}

const (
	mib        = 1 << 20
	guaranteed = "limits: {cpu: 50m, memory: 64Mi}"
	limited    = "requests: {memory: 32Mi}, limits: {memory: 64Mi}"
)

// With the feature gate MemoryQoS the kernel keeps for pods what they request of memory, and throttles containers that
// come near their limit. Pods that come once it is off again have neither.
func TestMemoryQoS(t *testing.T) {
	notQuick(t)
	if !t.Run("On", memoryQoS) {
		return // the cgroups of the classes may have kept what they had
	}
	ns := bed.Namespace(t)
	ns.Apply(idle("guaranteed", guaranteed) + idle("burstable", limited))
	for _, name := range []string{"guaranteed", "burstable"} {
		protects(t, ns.Running(name), "0 0 max", "0 0 max")
	}
	cgroupHas(t, kubepods, "memory.min", "0")
	cgroupHas(t, burstable, "memory.low", "0")
}

// memoryQoS checks the figures of KEP-2570 and of qosReserved with both gates on. It leaves the cgroups of the classes
// without protection: nobody takes it away later.
func memoryQoS(t *testing.T) {
	configure(t, `featureGates: {MemoryQoS: true, QOSReserved: true}
memoryReservationPolicy: TieredReservation
qosReserved: {memory: 50%}
`)
	ns := bed.Namespace(t)
	ns.Apply(idle("guaranteed", guaranteed) + idle("burstable", limited) +
		idle("unlimited", "requests: {memory: 32Mi}") + idle("besteffort", ""))
	total := kilobytes(t, "MemTotal") << 10
	for name, want := range map[string]struct{ pod, container string }{
		"guaranteed": {"67108864 0 max", "67108864 0 max"},
		"burstable":  {"0 33554432 max", fmt.Sprintf("0 33554432 %d", throttled(32*mib, 64*mib))},
		// What pods may have in all stands for a limit.
		"unlimited":  {"0 33554432 max", fmt.Sprintf("0 33554432 %d", throttled(32*mib, total))},
		"besteffort": {"0 0 max", "0 0 max"},
	} {
		protects(t, ns.Running(name), want.pod, want.container)
	}
	// The guaranteed pod requests 64 MiB, the burstable ones together as much. qosReserved keeps half of each from the
	// classes below.
	cgroupHas(t, kubepods, "memory.min memory.low", "134217728 0")
	cgroupHas(t, burstable, "memory.min memory.low memory.max", fmt.Sprintf("0 67108864 %d", total-32*mib))
	cgroupHas(t, bestEffort, "memory.min memory.low memory.max", fmt.Sprintf("0 0 %d", total-64*mib))

	ns.Kubectl("patch", "pod/burstable", "--subresource=resize", "--patch",
		`{"spec": {"containers": [{"name": "app", "resources": {"requests": {"memory": "48Mi"}}}]}}`)
	cgroupHas(t, sliceOf(ns.Running("burstable")), "memory.low", "50331648")
	cgroupHas(t, burstable, "memory.low", "83886080")

	for _, name := range []string{"guaranteed", "burstable", "unlimited", "besteffort"} {
		ns.Delete(name, 1)
	}
	all := fmt.Sprint(total)
	cgroupHas(t, kubepods, "memory.min", "0")
	cgroupHas(t, burstable, "memory.low memory.max", "0 "+all)
	cgroupHas(t, bestEffort, "memory.max", all)
}

// throttled is memory.high by the formula of KEP-2570 with the default memoryThrottlingFactor, in whole pages.
func throttled(request, limit int64) int64 {
	const factor, page = 0.9, 4096
	return int64((float64(request)+float64(limit-request)*factor)/page) * page
}

// protects checks memory.min, memory.low and memory.high of the pod's cgroup and of its container's.
func protects(t *testing.T, p *corev1.Pod, pod, container string) {
	t.Helper()
	for dir, want := range map[string]string{sliceOf(p): pod, containerCgroup(p): container} {
		if got := in(t, "cd "+dir+" && echo $(cat memory.min memory.low memory.high)"); got != want {
			t.Errorf("pod %s: memory.min, memory.low and memory.high of %s are %q, want %q", p.Name, dir, got, want)
		}
	}
}

// The cgroups of the system and of Kubernetes' daemons have what is reserved for them and no more, and pods have the
// rest. A cgroup that isn't there is named in the log, and gets its limits once it is there.
func TestReservedCgroups(t *testing.T) {
	notQuick(t)
	// The slices are the test's own: limits of system.slice would hold the container runtime.
	undo(t, "systemctl stop reserved.slice; rm -rf /run/systemd/system.control/reserved*.slice.d")
	runIn := func(slice string) { in(t, "systemd-run --quiet --slice="+slice+" sleep infinity") }
	runIn("reserved-system.slice")
	// With MemoryQoS the kernel also keeps the memory for them.
	configure(t, `enforceNodeAllocatable: [pods, system-reserved, kube-reserved]
systemReserved: {cpu: 200m, memory: 128Mi, pid: '500'}
kubeReserved: {cpu: 100m, memory: 96Mi, pid: '300'}
systemReservedCgroup: /reserved.slice/reserved-system.slice
kubeReservedCgroup: reserved-kube.slice
featureGates: {MemoryQoS: true}
`)
	eventually(t, "podsync to name the cgroup that isn't there", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "journalctl --quiet --no-pager -n 1000 -u kubelot-podsync.service | "+
			"grep -F 'cgroup reserved-kube.slice of reserved resources' | tail -n 1")
		if err == nil && !strings.Contains(out, "make it: it is looked for again") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	runIn("reserved-kube.slice")
	n, err := node.KubeNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cpus, memory := n.Status.Capacity.Cpu().MilliValue(), kilobytes(t, "MemTotal")<<10
	pids := min(number(t, in(t, "cat /proc/sys/kernel/pid_max")), number(t, in(t, "cat /proc/sys/kernel/threads-max")))
	const files = "cpu.weight memory.max memory.min pids.max"
	cgroupHas(t, "/sys/fs/cgroup/reserved.slice/reserved-system.slice", files,
		fmt.Sprintf("%d 134217728 134217728 500", weight(200)))
	cgroupHas(t, "/sys/fs/cgroup/reserved.slice/reserved-kube.slice", files,
		fmt.Sprintf("%d 100663296 100663296 300", weight(100)))
	cgroupHas(t, kubepods, files, fmt.Sprintf("%d %d 0 %d", weight(cpus-300), memory-224*mib, pids-800))
}

// weight is cpu.weight by the kubelet's rule, for thousandths of a CPU.
func weight(milliCPU int64) int64 { return 1 + (milliCPU*1024/1000-2)*9999/262142 }
