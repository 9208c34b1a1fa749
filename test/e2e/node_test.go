package e2e

import (
	"context"
	"os"
	"strings"
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
	return bed.Client.CoreV1().Events(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node"})
}

// The node is Ready and its lease is renewed.
func TestNode(t *testing.T) {
	t.Parallel()
	if out := bed.Kubectl(t, "get", "nodes"); !strings.Contains(out, " Ready ") || !strings.Contains(out, "v1.36") {
		t.Errorf("kubectl get nodes:\n%s", out)
	}
	leases := bed.Client.CoordinationV1().Leases("kube-node-lease")
	first, err := leases.Get(t.Context(), kit.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *first.Spec.HolderIdentity != kit.NodeName || *first.Spec.LeaseDurationSeconds != 40 || len(first.OwnerReferences) != 1 {
		t.Errorf("lease: %+v, owned by %v", first.Spec, first.OwnerReferences)
	}
	kit.Follow(t, "the lease's renewal", func(ctx context.Context) (kit.Watcher, error) {
		return leases.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + kit.NodeName})
	}, func(l *coordinationv1.Lease) bool { return l.Spec.RenewTime.After(first.Spec.RenewTime.Time) })
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
	container := "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER, resources: {limits: {memory: 32Mi}}}]\n"
	ns.Apply(pod("classy", "  runtimeClassName: "+ns.Name+"\n"+container) + "\n---\n" + pod("lost", "  runtimeClassName: "+absent.Name+"\n"+container))
	p := ns.Running("classy")
	var limits []string
	for _, pattern := range []string{"/sys/fs/cgroup/memory" + bed.Bed.CgroupRoot + "/kubepods/burstable/pod" + string(p.UID) + "/memory.limit_in_bytes", "/sys/fs/cgroup" + bed.Bed.CgroupRoot + "/kubepods/burstable/pod" + string(p.UID) + "/memory.max"} {
		if data, err := os.ReadFile(pattern); err == nil {
			limits = append(limits, strings.TrimSpace(string(data)))
		}
	}
	if len(limits) != 1 || limits[0] != "41943040" {
		t.Errorf("memory limit of the pod's cgroup %v; want that of the container and the overhead, 40 MiB", limits)
	}
	ns.Event("lost", "FailedCreatePodSandBox", "no-such-handler")
}
