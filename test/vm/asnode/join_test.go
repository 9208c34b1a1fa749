package asnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/vm/guest"
	"kubelot.dev/test/vm/page"
)

var noOptions metav1.DeleteOptions

// stays is a pod whose Ready condition one failed probe would turn, with a volume.
const stays = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  terminationGracePeriodSeconds: 5
  volumes: [{name: settings, configMap: {name: settings}}]
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1 & wait; done']
    volumeMounts: [{name: settings, mountPath: /settings}]
    readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 5, failureThreshold: 1}
`

// TestJoin follows the install page to a node of kubeadm, and goes on to what comes in a node's life: certificates, an
// upgrade, and the way out.
func TestJoin(t *testing.T) {
	runtimeByPage(t)
	steps := commands(t, kubeadmNode)
	nodeAddress(t)
	follow(t, steps[3])
	j, err := host.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	command, err := page.Fill(steps[4], map[string]string{"ADDRESS:6443": j.Address, "TOKEN": j.Token, "HASH": j.Hash})
	if err != nil {
		t.Fatal(err)
	}
	out := follow(t, command)
	t.Log(out)
	if !strings.Contains(out, "This node has joined the cluster") {
		t.Error("kubeadm doesn't say that the node has joined")
	}
	daemons(t)
	n, err := node.KubeNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n.Status.NodeInfo.KubeletVersion != "v1.36.3" {
		t.Errorf("the node has the version %s", n.Status.NodeInfo.KubeletVersion)
	}
	notReady(t)
	network(t)
	awaitReady(t)
	approveServing(t)

	ns := bed.Namespace(t)
	ns.Apply(stays)
	before := held(ns.Running("stays"))
	answers(t, ns, "stays")
	stayed := true
	ok := t.Run("configuration", kubeadmsFiles) &&
		t.Run("serving certificate", func(t *testing.T) { servingCertificate(t) }) &&
		t.Run("serving certificate renewed", servingCertificateAgain) &&
		t.Run("client certificate", clientCertificate) &&
		t.Run("upgrade", func(t *testing.T) { stayed = upgradeNode(t) })
	after := held(ns.Running("stays"))
	if !stayed {
		// A node that isn't Ready has no pods that are.
		before, after = withoutReady(before), withoutReady(after)
	}
	if after != before {
		t.Errorf("the pod is %s, and was %s", after, before)
	}
	if ok {
		answers(t, ns, "stays")
		t.Run("reset", resetNode)
	}
}

// notReady checks what the page says of a node without the cluster's network.
func notReady(t *testing.T) {
	t.Helper()
	eventually(t, "the node to say that it lacks a network", func(ctx context.Context) error {
		n, err := node.KubeNode(ctx)
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "network") {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", n.Status.Conditions)
	})
}

// approveServing approves the node's request for a serving certificate, as an administrator must.
func approveServing(t *testing.T) {
	t.Helper()
	requests := bed.Client.CertificatesV1().CertificateSigningRequests()
	eventually(t, "a request for a serving certificate", func(ctx context.Context) error {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(r.Status.Conditions) > 0 {
				continue
			}
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "TheTest",
			}}
			_, err := requests.UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{})
			return err
		}
		return fmt.Errorf("there are %d requests, and none that waits", len(list.Items))
	})
}

// kubeadmsFiles checks that what kubeadm has written is what the daemons run with.
func kubeadmsFiles(t *testing.T) {
	for _, path := range []string{
		"/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/instance-config.yaml", "/etc/kubernetes/kubelet.conf",
	} {
		in(t, "test -s "+path)
	}
	in(t, "test ! -e /etc/kubernetes/bootstrap-kubelet.conf")
	if text := in(t, "cat /etc/kubernetes/kubelet.conf"); !strings.Contains(text,
		"client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem") {
		t.Errorf("kubelet.conf has no client certificate that is renewed:\n%s", text)
	}
	endpoint := in(t, "sed -n 's/^containerRuntimeEndpoint: *//p' /var/lib/kubelet/instance-config.yaml")
	if text := in(t, "cat /var/lib/kubelet/config.yaml"); !strings.Contains(text, strings.Trim(endpoint, `"`)) {
		t.Errorf("the runtime's endpoint is %s, and config.yaml has another:\n%s", endpoint, text)
	}
	for unit, pid := range daemons(t) {
		args := in(t, "tr '\\0' ' ' </proc/"+pid+"/cmdline")
		for _, want := range []string{
			"--config=/var/lib/kubelet/config.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf",
			"--node-ip=" + node.Address.String(),
		} {
			if !strings.Contains(args, want) {
				t.Errorf("%s runs without %s: %s", unit, want, args)
			}
		}
	}
}

// servingCertificate waits until the node's API has a certificate that the cluster has signed, and returns it.
func servingCertificate(t *testing.T) (cert *x509.Certificate) {
	t.Helper()
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(node.ControlPlane.CAFile())
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("the cluster's authority: %v", err)
	}
	address := net.JoinHostPort(node.Address.String(), "10250")
	eventually(t, "a serving certificate of the cluster", func(ctx context.Context) error {
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		secure, ok := conn.(*tls.Conn)
		if !ok {
			return errors.New("no TLS")
		}
		cert = secure.ConnectionState().PeerCertificates[0]
		if cert.Subject.CommonName != "system:node:"+guest.Name {
			return fmt.Errorf("it is that of %s", cert.Subject)
		}
		return cert.VerifyHostname(guest.Name)
	})
	return cert
}

// maxPods is the change that the upgrade brings.
const maxPods = 77

// upgradeNode has kubeadm bring a change of the cluster's kubelet configuration to the node. It reports whether the
// node stayed Ready: an emulated machine may take longer to restart all daemons than they may be away.
func upgradeNode(t *testing.T) (stayed bool) {
	ctx := t.Context()
	maps := bed.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	config, err := maps.Get(ctx, "kubelet-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"data":{"kubelet":%q}}`, config.Data["kubelet"]+fmt.Sprintf("\nmaxPods: %d\n", maxPods))
	_, err = maps.Patch(ctx, "kubelet-config", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before, since := daemons(t), readySince(t)
	t.Log(in(t, "kubeadm upgrade node"))
	// The restart is the administrator's, as Kubernetes' documentation has it.
	began := time.Now()
	in(t, "systemctl daemon-reload && systemctl restart kubelet")
	eventually(t, "all daemons to be new ones, and ready", func(ctx context.Context) error {
		now, err := node.Show(ctx, guest.DaemonUnits()...)
		for unit, u := range now {
			if !u.Running() || u.MainPID == before[unit] {
				err = fmt.Errorf("%s is %s, process %s, and was process %s", unit, u.ActiveState, u.MainPID, before[unit])
			}
		}
		return err
	})
	took := time.Since(began)
	eventually(t, "the node to have the new configuration", func(ctx context.Context) error {
		n, err := node.KubeNode(ctx)
		if err == nil && n.Status.Capacity.Pods().Value() != maxPods {
			err = fmt.Errorf("it has room for %s pods", n.Status.Capacity.Pods())
		}
		return err
	})
	awaitReady(t)
	now := readySince(t)
	switch {
	case now == since:
		return true
	case took < stopped:
		t.Errorf("the node is Ready since %s, before the upgrade it was since %s", now, since)
		return true
	}
	t.Logf("the restart took %s, so the node wasn't Ready for a moment", took)
	return false
}

// stopped is how long a daemon that has said that it stops may be away before the node isn't Ready without it.
const stopped = 30 * time.Second

// resetNode has kubeadm take the node out of the cluster again.
func resetNode(t *testing.T) {
	drain(t)
	if out := reset(t); strings.Contains(out, "failed") || strings.Contains(out, "Failed") {
		t.Error("something of the reset failed")
	}
	nothingIsLeft(t)
	if err := bed.Client.CoreV1().Nodes().Delete(t.Context(), guest.Name, noOptions); err != nil {
		t.Error(err)
	}
}

// drain has the cluster delete the node's pods, as an administrator does before a reset, and waits until nothing of
// them is left: kubeadm gives the runtime two seconds to stop a pod, in which an emulated machine can't take its
// network down, however often it is tried. TestKubeadm of the packages has kubeadm end pods that run.
func drain(t *testing.T) {
	t.Helper()
	here := metav1.ListOptions{FieldSelector: "spec.nodeName=" + guest.Name}
	eventually(t, "the end of the node's pods", func(ctx context.Context) error {
		pods, err := bed.Client.CoreV1().Pods("").List(ctx, here)
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			err := bed.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, noOptions)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		out, err := node.Machine.Run(ctx, "find /sys/fs/cgroup -name '*kubepods*pod*'; ctr -n k8s.io tasks list -q")
		if err == nil && out != "" {
			err = fmt.Errorf("there are the cgroups and containers\n%s", out)
		}
		return err
	})
}

// reset runs kubeadm reset and returns what it says.
func reset(t *testing.T) string {
	t.Helper()
	out := in(t, "kubeadm reset -f 2>&1")
	t.Log(out)
	if strings.Contains(out, "DeadlineExceeded") {
		// See drain. Whoever sees that of a pod calls it again.
		out = in(t, "kubeadm reset -f 2>&1")
		t.Log(out)
	}
	return out
}
