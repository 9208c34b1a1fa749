package apiserver

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// registrar is the bed's node with a configuration of the test's own, and no Node yet.
func registrar(t *testing.T) *newcomer {
	t.Helper()
	n := &newcomer{t: t, api: admin(t), c: testConfig(nodeName(t))}
	n.c.Kubelet.NodeStatusUpdateFrequency.Duration, n.c.Kubelet.NodeStatusReportFrequency.Duration = time.Second,
		time.Second
	remove := func() {
		_ = n.api.CoreV1().Nodes().Delete(context.Background(), n.c.NodeName, metav1.DeleteOptions{})
	}
	remove()
	t.Cleanup(remove)
	return n
}

// node waits for a Node that is as wanted.
func (n *newcomer) node(what string, ok func(*corev1.Node) bool) *corev1.Node {
	n.t.Helper()
	var node *corev1.Node
	eventually(n.t, what, func() bool {
		var err error
		node, err = n.api.CoreV1().Nodes().Get(n.t.Context(), n.c.NodeName, metav1.GetOptions{})
		return err == nil && ok(node)
	})
	return node
}

func (n *newcomer) create(node corev1.Node) *corev1.Node {
	n.t.Helper()
	node.Name = n.c.NodeName
	made, err := n.api.CoreV1().Nodes().Create(n.t.Context(), &node, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return made
}

func reported(node *corev1.Node) bool { return len(node.Status.Conditions) > 0 }

// What the kubelet owns of a Node that exists is brought up to date; what was meant for the registration only isn't.
func TestExistingNodeIsReconciled(t *testing.T) {
	n := registrar(t)
	n.c.NodeLabels = map[string]string{"team": "blue", corev1.LabelTopologyZone: "z2"}
	n.c.RegisterTaints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	n.c.ProviderID = "cloud://2"
	before := n.create(corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			corev1.LabelHostname: "wrong", "team": "green",
			corev1.LabelTopologyZone: "z1", "mine": "yes",
		}},
		Spec: corev1.NodeSpec{ProviderID: "cloud://1"},
	})
	_, stop := n.start()
	defer stop()
	node := n.node("a status", reported)
	for key, want := range map[string]string{
		corev1.LabelHostname: n.c.NodeName, "team": "green", corev1.LabelTopologyZone: "z2", "mine": "yes",
		corev1.LabelOSStable: "linux",
	} {
		if node.Labels[key] != want {
			t.Errorf("label %s is %q; want %q", key, node.Labels[key], want)
		}
	}
	dedicated := func(taint corev1.Taint) bool { return taint.Key == "dedicated" }
	if node.UID != before.UID || slices.ContainsFunc(node.Spec.Taints, dedicated) || node.Spec.ProviderID != "cloud://1" ||
		node.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
		t.Errorf("spec %+v, annotations %v", node.Spec, node.Annotations)
	}
	if want := []string{"ExtendWebSocketsToKubelet"}; !slices.Equal(node.Status.DeclaredFeatures, want) {
		t.Errorf("declared features %v; want %v", node.Status.DeclaredFeatures, want)
	}
}

// With an external cloud provider the node waits for it: the taint says so, and the addresses are left to it.
func TestExternalCloudProvider(t *testing.T) {
	n := registrar(t)
	n.c.CloudProvider, n.c.ProviderID = "external", "cloud://zone/machine"
	_, stop := n.start()
	node := n.node("a status", reported)
	uninitialized := corev1.Taint{
		Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true",
		Effect: corev1.TaintEffectNoSchedule,
	}
	if !slices.Contains(node.Spec.Taints, uninitialized) || node.Spec.ProviderID != n.c.ProviderID {
		t.Errorf("spec %+v", node.Spec)
	}
	if want := []corev1.NodeAddress{{
		Type:    corev1.NodeHostName,
		Address: n.c.NodeName,
	}}; !slices.Equal(node.Status.Addresses, want) {
		t.Errorf("addresses %v before the cloud provider's", node.Status.Addresses)
	}
	patch := `{"status":{"addresses":[{"type":"ExternalIP","address":"192.0.2.7"},{"type":"InternalIP","address":"10.9.8.7"},{"type":"Hostname","address":"h"}]}}`
	told, err := n.api.CoreV1().Nodes().Patch(t.Context(), n.c.NodeName, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	heartbeat := func(node *corev1.Node) time.Time { return node.Status.Conditions[0].LastHeartbeatTime.Time }
	node = n.node("the next report", func(node *corev1.Node) bool { return heartbeat(node).After(heartbeat(told)) })
	if !slices.Equal(node.Status.Addresses, told.Status.Addresses) {
		t.Errorf("addresses %v; want the cloud provider's %v", node.Status.Addresses, told.Status.Addresses)
	}
	stop()
	// It is told of an address that was given.
	n.c.NodeIPs = []netip.Addr{localAddress(t)}
	_, stop = n.start()
	defer stop()
	n.node("the annotation", func(node *corev1.Node) bool {
		return node.Annotations["alpha.kubernetes.io/provided-node-ip"] == n.c.NodeIPs[0].String()
	})
}

// A node that doesn't register itself reports the status of a Node that somebody else makes.
func TestNodeRegisteredBySomebodyElse(t *testing.T) {
	n := registrar(t)
	n.c.RegisterNode = false
	_, stop := n.start()
	defer stop()
	for range 20 {
		if _, err := n.api.CoreV1().Nodes().Get(t.Context(), n.c.NodeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the node has registered itself (%v)", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.create(corev1.Node{})
	n.node("a status", reported)
}

// A Node that is deleted under a running agent isn't made again by it; one that somebody else makes is taken as it is,
// and the lease is the new one's.
func TestDeletedNode(t *testing.T) {
	n := registrar(t)
	s, stop := n.start()
	defer stop()
	first := n.node("the node", reported)
	if err := n.api.CoreV1().Nodes().Delete(t.Context(), n.c.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the removal to be noticed", func() bool { return s.has("was deleted at the API server", "") })
	if _, err := n.api.CoreV1().Nodes().Get(t.Context(), n.c.NodeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node is there again (%v)", err)
	}
	second := n.create(corev1.Node{})
	n.node("its status", reported)
	eventually(t, "its lease", func() bool {
		lease, err := n.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), n.c.NodeName,
			metav1.GetOptions{})
		return err == nil && len(lease.OwnerReferences) == 1 && lease.OwnerReferences[0].UID == second.UID &&
			second.UID != first.UID
	})
}

// localAddress is one of the machine's addresses that a node may have.
func localAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() &&
			!prefix.Addr().IsLinkLocalUnicast() {
			return prefix.Addr()
		}
	}
	t.Fatal("this machine has no IPv4 address")
	return netip.Addr{}
}
