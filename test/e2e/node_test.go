package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// hostLink names one of the host's namespaces.
func hostLink(t *testing.T, kind string) string {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func eventsOfNode(ctx context.Context) (kit.Watcher, error) {
	return bed.Client.CoreV1().Events(metav1.NamespaceDefault).Watch(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Node"})
}

// The node is Ready and its lease is renewed.
func TestNode(t *testing.T) {
	t.Parallel()
	if out := bed.Kubectl(t, "get", "nodes"); !strings.Contains(out, " Ready ") || !strings.Contains(out, "v1.36") {
		t.Errorf("kubectl get nodes:\n%s", out)
	}
	leases := func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.CoordinationV1().Leases("kube-node-lease").Watch(ctx,
			metav1.ListOptions{FieldSelector: "metadata.name=" + kit.NodeName})
	}
	first := kit.Follow(t, "a lease of the node", leases, func(l *coordinationv1.Lease) bool {
		return len(l.OwnerReferences) == 1
	})
	if *first.Spec.HolderIdentity != kit.NodeName || *first.Spec.LeaseDurationSeconds != 40 {
		t.Errorf("lease: %+v", first.Spec)
	}
	kit.Follow(t, "the lease's renewal", leases, func(l *coordinationv1.Lease) bool {
		return l.Spec.RenewTime.After(first.Spec.RenewTime.Time)
	})
}

// What the node says of itself: labels, addresses, conditions, capacity and what of it is left for pods.
func TestNodeStatus(t *testing.T) {
	t.Parallel()
	// The controllers take their taint off once the node is Ready.
	n := kit.Follow(t, "node with images and without taints", func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + kit.NodeName})
	}, func(n *corev1.Node) bool { return len(n.Spec.Taints) == 0 && len(n.Status.Images) > 0 })
	for key, value := range map[string]string{
		corev1.LabelHostname: kit.NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH,
	} {
		if n.Labels[key] != value {
			t.Errorf("label %s is %q; want %q", key, n.Labels[key], value)
		}
	}
	want := []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: bed.Bed.Gateway.String()},
		{Type: corev1.NodeHostName, Address: kit.NodeName},
	}
	if !slices.Equal(n.Status.Addresses, want) {
		t.Errorf("addresses %v; want %v", n.Status.Addresses, want)
	}
	var conditions []string
	for _, c := range n.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		if c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero() || c.Message == "" {
			t.Errorf("condition %+v lacks a time or a message", c)
		}
	}
	if want := []string{
		"MemoryPressure=False KubeletHasSufficientMemory", "DiskPressure=False KubeletHasNoDiskPressure",
		"PIDPressure=False KubeletHasSufficientPID", "Ready=True KubeletReady",
	}; !slices.Equal(conditions, want) {
		t.Errorf("conditions %q; want %q", conditions, want)
	}
	info := n.Status.NodeInfo
	if info.KernelVersion == "" || info.OSImage == "" || info.BootID == "" || info.OperatingSystem != "linux" ||
		!strings.HasPrefix(info.ContainerRuntimeVersion, bed.RuntimeName(t)+"://") {
		t.Errorf("node info: %+v", info)
	}
	if port := n.Status.DaemonEndpoints.KubeletEndpoint.Port; int(port) != bed.Node.Port {
		t.Errorf("the port is %d; want %d", port, bed.Node.Port)
	}
	checkRuntime(t, n)
	checkCapacity(t, n)
	heldBack(t, n, map[corev1.ResourceName]string{
		corev1.ResourceCPU: "0", corev1.ResourceMemory: "100Mi",
		corev1.ResourcePods: "0",
	})
	storage := n.Status.Capacity.StorageEphemeral().Value()
	held := int64(float64(storage) * float64(float32(1)/100)) // in the precision of the kubelet
	if left := n.Status.Allocatable.StorageEphemeral().Value(); left != storage-held {
		t.Errorf("%d bytes of %d are left for pods; want all but one per cent", left, storage)
	}
}

// checkHandlers checks what the node says of what its runtime can do.
func checkHandlers(t *testing.T, n *corev1.Node) {
	t.Helper()
	if handlers := n.Status.RuntimeHandlers; !slices.ContainsFunc(handlers, func(h corev1.NodeRuntimeHandler) bool {
		return h.Name == "runc" && h.Features != nil && h.Features.RecursiveReadOnlyMounts != nil &&
			h.Features.UserNamespaces != nil
	}) {
		t.Errorf("runtime handlers %+v", handlers)
	}
	if f := n.Status.Features; f == nil || f.SupplementalGroupsPolicy == nil {
		t.Errorf("features %+v", f)
	}
}

// checkRuntime checks what the node says of its runtime, its images and itself.
func checkRuntime(t *testing.T, n *corev1.Node) {
	t.Helper()
	if !bed.Containerd1(t) {
		checkHandlers(t, n)
	}
	if want := []string{"ExtendWebSocketsToKubelet"}; !slices.Equal(n.Status.DeclaredFeatures, want) {
		t.Errorf("declared features %v; want %v", n.Status.DeclaredFeatures, want)
	}
	if images := n.Status.Images; len(images) == 0 || len(images) > 50 ||
		!slices.IsSortedFunc(images, func(a, b corev1.ContainerImage) int { return cmp.Compare(b.SizeBytes, a.SizeBytes) }) {
		t.Errorf("images %+v; want 50 at most, the largest first", images)
	}
	var swap int64
	if meminfo, err := os.ReadFile("/proc/meminfo"); err != nil {
		t.Error(err)
	} else if _, err := fmt.Sscanf(string(meminfo[strings.Index(string(meminfo), "SwapTotal:"):]), "SwapTotal: %d kB",
		&swap); err != nil {
		t.Error(err)
	}
	if is := n.Status.NodeInfo.Swap; swap == 0 && is != nil || swap > 0 && (is == nil || is.Capacity == nil ||
		*is.Capacity != swap<<10) {
		t.Errorf("swap %+v; the kernel has %d KiB", is, swap)
	}
}

// checkCapacity compares the node's capacity with what the kernel says.
func checkCapacity(t *testing.T, n *corev1.Node) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(bed.Node.RootDir, &disk); err != nil {
		t.Fatal(err)
	}
	want := map[corev1.ResourceName]int64{
		corev1.ResourceCPU: int64(runtime.NumCPU()), corev1.ResourcePods: 250,
		corev1.ResourceEphemeralStorage: int64(disk.Blocks) * disk.Bsize,
	}
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	if _, err := fmt.Sscanf(string(meminfo), "MemTotal: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	want[corev1.ResourceMemory] = kib << 10
	pools, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages")
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range pools {
		data, err := os.ReadFile(pool)
		if err != nil {
			t.Fatal(err)
		}
		var size, pages int64
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(pool))+" "+string(data), "hugepages-%dkB %d", &size,
			&pages); err != nil {
			t.Fatal(err)
		}
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size<<10, resource.BinarySI).String()
		want[corev1.ResourceName(name)] = pages * size << 10
	}
	for name, value := range want {
		if is, ok := n.Status.Capacity[name]; !ok || is.Value() != value {
			t.Errorf("capacity of %s is %s (%t); want %d", name, is.String(), ok, value)
		}
	}
	if len(n.Status.Capacity) != len(want) {
		t.Errorf("capacity %v; want just %v", n.Status.Capacity, want)
	}
}

// heldBack checks how much of the capacity pods don't get. Huge pages are not in the machine's memory for pods either.
func heldBack(t *testing.T, n *corev1.Node, want map[corev1.ResourceName]string) {
	t.Helper()
	for name, text := range want {
		held := n.Status.Capacity[name].DeepCopy()
		held.Sub(n.Status.Allocatable[name])
		quantity := resource.MustParse(text)
		for pages, pool := range n.Status.Capacity {
			if name == corev1.ResourceMemory && strings.HasPrefix(string(pages), corev1.ResourceHugePagesPrefix) {
				quantity.Add(pool)
			}
		}
		if held.Cmp(quantity) != 0 {
			t.Errorf("%s of %s is held back; want %s", held.String(), name, quantity.String())
		}
	}
}

// A RuntimeClass chooses the handler, and its overhead counts.
func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: ns.Name}, Handler: "runc",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Mi")}},
	}
	if _, err := bed.Client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bed.Client.NodeV1().RuntimeClasses().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
	})
	absent := *class
	absent.Name, absent.Handler = ns.Name+"-absent", "no-such-handler"
	if _, err := bed.Client.NodeV1().RuntimeClasses().Create(t.Context(), &absent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bed.Client.NodeV1().RuntimeClasses().Delete(context.Background(), absent.Name, metav1.DeleteOptions{})
	})
	container := "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER, " +
		"resources: {limits: {memory: 32Mi}}}]\n"
	ns.Apply(pod("classy", "  runtimeClassName: "+ns.Name+"\n"+container) + "\n---\n" + pod("lost",
		"  runtimeClassName: "+absent.Name+"\n"+container))
	p := ns.Running("classy")
	var limits []string
	for _, pattern := range []string{"/sys/fs/cgroup/memory" + bed.Bed.CgroupRoot + "/kubepods/burstable/pod" +
		string(p.UID) + "/memory.limit_in_bytes", "/sys/fs/cgroup" + bed.Bed.CgroupRoot + "/kubepods/burstable/pod" +
		string(p.UID) + "/memory.max"} {
		if data, err := os.ReadFile(pattern); err == nil {
			limits = append(limits, strings.TrimSpace(string(data)))
		}
	}
	if len(limits) != 1 || limits[0] != "41943040" {
		t.Errorf("memory limit of the pod's cgroup %v; want that of the container and the overhead, 40 MiB", limits)
	}
	ns.Event("lost", "FailedCreatePodSandBox", "no-such-handler")
}
