package vm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

// With swap, pods have of it what their share of the memory is, and only those that ask for memory and may have more.
// An Event says that this kernel can't keep volumes in memory out of it.
func TestLimitedSwap(t *testing.T) {
	notQuick(t)
	swapOn(t, "1G", "memorySwap: {swapBehavior: LimitedSwap}\n")
	ns := bed.Namespace(t)
	// The first one takes more than its limit, and needs what it has of swap to live. It takes that step by step: the
	// kernel kills who wants more at once than it swaps out in a moment.
	ns.Apply(strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: burstable}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command:
    - sh
    - -c
    - 'for i in $(seq 13); do dd if=/dev/zero bs=8M count=1 | (sleep 3600; cat >/dev/null) & sleep 1; done; wait'
    resources: {requests: {memory: 96Mi}, limits: {memory: 100Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {limits: {cpu: 50m, memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: besteffort}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]
`, "$FOREVER", forever))
	for _, name := range []string{"burstable", "guaranteed", "besteffort"} {
		ns.Running(name)
	}
	memory, swap := kilobytes(t, "MemTotal"), kilobytes(t, "SwapTotal")
	limit := func(pod string) int64 {
		return number(t, inPod(t, ns, pod, "cat /sys/fs/cgroup/memory.swap.max"))
	}
	want := int64(float64(96<<10) / float64(memory) * float64(swap) * 1024)
	if got := limit("burstable"); got > want || got < want-2*4096 {
		t.Errorf("the burstable container may have %d bytes of swap, want %d in whole pages", got, want)
	}
	for _, name := range []string{"guaranteed", "besteffort"} {
		if got := limit(name); got != 0 {
			t.Errorf("the %s container may have %d bytes of swap, want none", name, got)
		}
	}
	eventually(t, "the burstable pod to swap", func(context.Context) error {
		out, err := ns.TryKubectl("exec", "burstable", "--", "cat", "/sys/fs/cgroup/memory.swap.current")
		if err == nil && number(t, out) < 4<<20 {
			err = fmt.Errorf("it has %s bytes swapped out", out)
		}
		return err
	})
	if p := ns.Running("burstable"); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod that swaps was restarted: %+v", p.Status.ContainerStatuses[0].LastTerminationState)
	}
	n, err := node.KubeNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := n.Status.NodeInfo.Swap; s == nil || s.Capacity == nil || *s.Capacity != swap<<10 {
		t.Errorf("the node reports swap %+v, want a capacity of %d", s, swap<<10)
	}
	const reason = "PossibleMemoryBackedVolumesOnDisk" // noswap came with Linux 6.4
	kit.Follow(t, "Event "+reason+" on the node", func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.CoreV1().Events(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + guest.Name + ",reason=" + reason,
		})
	}, func(e *corev1.Event) bool { return e.Type == corev1.EventTypeWarning })
}

// swapOn gives the machine swap, and kubelot more of its configuration. At the end the swap goes first: kubelot refuses
// to run with it otherwise.
func swapOn(t *testing.T, size, config string) {
	t.Helper()
	const off = "if [ -e /swapfile ]; then swapoff /swapfile && rm /swapfile; fi"
	in(t, "fallocate -l "+size+" /swapfile && chmod 0600 /swapfile && mkswap /swapfile && swapon /swapfile")
	undo(t, off) // where kubelot can't be configured
	configure(t, "failSwapOn: false\n"+config)
	undo(t, off)
}

// Without a setting pods have no swap, though the machine has.
func TestNoSwap(t *testing.T) {
	notQuick(t)
	swapOn(t, "256M", "")
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: burstable}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, resources: {requests: {memory: 32Mi}, limits: {memory: 64Mi}}}
`, "$FOREVER", forever))
	ns.Running("burstable")
	if got := inPod(t, ns, "burstable", "cat /sys/fs/cgroup/memory.swap.max"); got != "0\n" {
		t.Errorf("the container may have %q of swap", got)
	}
}

// Huge pages are a resource of the node. A pod has its limit of them, and a filesystem of them.
func TestHugePages(t *testing.T) {
	notQuick(t)
	in(t, "sysctl -qw vm.nr_hugepages=16")
	undo(t, "sysctl -qw vm.nr_hugepages=0")
	configure(t, "")
	const pages = corev1.ResourceHugePagesPrefix + "2Mi"
	eventually(t, "the node to have huge pages", func(ctx context.Context) error {
		n, err := node.KubeNode(ctx)
		if got := n.Status.Allocatable[pages]; err == nil && got.Cmp(resource.MustParse("32Mi")) != 0 {
			err = fmt.Errorf("it has %s", got.String())
		}
		return err
	})
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {limits: {hugepages-2Mi: 8Mi, memory: 32Mi, cpu: 50m}}
    volumeMounts: [{name: pages, mountPath: /pages}]
  volumes: [{name: pages, emptyDir: {medium: HugePages}}]
`, "$FOREVER", forever))
	// Containerd doesn't limit a container's huge pages as it is configured by default, so the pod's cgroup counts.
	cgroup := sliceOf(ns.Running("huge")) + "/hugetlb.2MB."
	exec := func(command string) string { return inPod(t, ns, "huge", command) }
	if got := in(t, "cat "+cgroup+"max"); got != "8388608" {
		t.Errorf("the pod may have %q of huge pages", got)
	}
	mount := exec("grep ' /pages ' /proc/mounts")
	if !strings.Contains(mount, "hugetlbfs") || !strings.Contains(mount, "pagesize=2M") {
		t.Errorf("the volume is mounted as %q", mount)
	}
	// The node's cgroup may get its limit later than the pod.
	exec("fallocate -l 4194304 /pages/file")
	if got := in(t, "cat "+cgroup+"current"); got != "4194304" {
		t.Errorf("with a file of 4 MiB the pod has %q of huge pages", got)
	}
	if got := exec("fallocate -l 12582912 /pages/more && echo yes || echo no"); !strings.HasSuffix(got, "no\n") {
		t.Errorf("a file above the limit can be made: %q", got)
	}
}

// kilobytes is a line of /proc/meminfo.
func kilobytes(t testing.TB, field string) int64 {
	t.Helper()
	return number(t, in(t, "awk '$1 == \""+field+":\" {print $2}' /proc/meminfo"))
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
