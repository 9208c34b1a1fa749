package packages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/testbed/kubeadm"
)

// TestKubeadm has a machine with the packages join a cluster by kubeadm, get a change of the configuration by kubeadm
// upgrade node, and leave by kubeadm reset, twice.
func TestKubeadm(t *testing.T) {
	m := newMember(t)
	m.apt(t, "install", below("/packages", append(crew, "kubelot-kubelet")...)...)
	m.join(t)
	before := m.awaitCrew(t, daemons)
	for name, pid := range before {
		if args := m.run(t, "cat", "/proc/"+pid+"/cmdline"); !strings.Contains(args, "--node-ip="+m.address.String()) {
			t.Errorf("%s runs without the flag of /etc/default/kubelet: %q", name, args)
		}
	}
	if m.has("/etc/kubernetes/bootstrap-kubelet.conf") || !m.has("/var/lib/kubelet/pki/kubelet-client-current.pem") {
		t.Error("the bootstrap kubeconfig is still there, or no client certificate is")
	}
	m.approve(t)
	state := m.runPod(t)
	was := state()
	since, err := m.readySince(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	m.changeConfig(t)
	m.run(t, "sh", "-c", "kubeadm upgrade node"+unchecked+" && systemctl daemon-reload && systemctl restart kubelet")
	eventually(t, "the node has the new configuration", func() error {
		n, err := m.node(t.Context())
		if err == nil && n.Status.Capacity.Pods().Value() != 77 {
			err = fmt.Errorf("it has room for %s pods", n.Status.Capacity.Pods())
		}
		return err
	})
	for name, pid := range m.awaitCrew(t, daemons) {
		if before[name] == pid {
			t.Errorf("%s wasn't restarted", name)
		}
	}
	if is := state(); is != was {
		t.Errorf("with the upgrade the pod became %s, and was %s", is, was)
	}
	if now, err := m.readySince(t.Context()); now != since || err != nil {
		t.Errorf("the node is Ready since %s, before the upgrade it was since %s: %v", now, since, err)
	}
	m.reset(t)
	// Nothing of the first time is in the way of a second.
	m.join(t)
	m.awaitCrew(t, daemons)
	m.reset(t)
}

// changeConfig changes the cluster's configuration for kubelets.
func (m *member) changeConfig(t *testing.T) {
	t.Helper()
	maps := m.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	config, err := maps.Get(t.Context(), "kubelet-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{
		"kubelet": config.Data["kubelet"] + "\nmaxPods: 77\n",
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = maps.Patch(t.Context(), "kubelet-config", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTakeover has kubelot take a node of kubeadm over from the kubelet, with the flags that kubeadm's drop-in gave it,
// and give it back. No container and no Ready condition notices.
func TestTakeover(t *testing.T) {
	m := newMember(t)
	m.put(t, "/usr/lib/systemd/system/kubelet.service", kubeadm.Unit)
	m.run(t, "ln", "-s", "/usr/local/lib/k8s-testbed", "/usr/bin/kubelet")
	m.run(t, "sh", "-c", "systemctl daemon-reload && systemctl enable kubelet")
	m.join(t)
	m.approve(t)
	state := m.runPod(t)
	// A kubelet that starts takes containers younger than ten seconds for new ones.
	time.Sleep(12 * time.Second)
	was := state()
	since, err := m.readySince(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same := func(after string) {
		t.Helper()
		if is := state(); is != was {
			t.Errorf("after %s the pod is %s, and was %s", after, is, was)
		}
		if now, err := m.readySince(t.Context()); now != since || err != nil {
			t.Errorf("after %s the node is Ready since %s, and was since %s: %v", after, now, since, err)
		}
		turned := metav1.ListOptions{FieldSelector: "reason=NodeNotReady"}
		events, err := m.client.CoreV1().Events("").List(t.Context(), turned)
		if err != nil || len(events.Items) > 0 {
			t.Errorf("after %s there are Events %v, %v", after, events, err)
		}
	}
	m.apt(t, "install", below("/packages", crew...)...)
	same("the installation")

	// A configuration that not all daemons can read is a reason not to begin.
	m.run(t, "chmod", "0600", "/var/lib/kubelet/config.yaml")
	out, err := m.try("kubelot", "takeover")
	if err == nil || !strings.Contains(out, "chgrp kubelot /var/lib/kubelet/config.yaml") ||
		m.state("kubelet") != "active" {
		t.Errorf("with a configuration for root alone: the kubelet is %s, %v\n%s", m.state("kubelet"), err, out)
	}
	m.run(t, "sh", "-c", "chgrp kubelot /var/lib/kubelet/config.yaml && chmod 0640 /var/lib/kubelet/config.yaml")

	if out := m.run(t, "kubelot", "takeover", "--check"); !strings.Contains(out, "kubelot can take this node over") {
		t.Errorf("the check says\n%s", out)
	}
	m.run(t, "kubelot", "takeover")
	for name, pid := range m.awaitCrew(t, daemons) {
		if args := m.run(t, "cat", "/proc/"+pid+"/cmdline"); !strings.Contains(args, "--node-ip="+m.address.String()) {
			t.Errorf("%s runs without the kubelet's flags: %q", name, args)
		}
	}
	if kubelet, target := m.state("kubelet"), m.state("kubelot.target"); kubelet != "inactive" || target != "active" {
		t.Errorf("the kubelet is %s, the crew %s", kubelet, target)
	}
	same("the takeover")

	m.run(t, "kubelot", "handback")
	eventually(t, "the kubelet runs alone", func() error {
		if got := m.running(t); len(got) > 0 || m.state("kubelet") != "active" {
			return fmt.Errorf("there run %v, the kubelet is %s", got, m.state("kubelet"))
		}
		_, err := m.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/member/proxy/pods").DoRaw(t.Context())
		return err
	})
	same("the way back")
	if m.has("/etc/systemd/system/kubelot-.service.d") {
		t.Error("the takeover has left its drop-in")
	}
	// It would go on writing while the machine's files are removed.
	m.run(t, "systemctl", "stop", "kubelet")
}
