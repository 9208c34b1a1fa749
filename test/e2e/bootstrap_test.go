package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// signingDuration is short, so that a certificate is renewed while the test looks: after half of it. The other half is
// for a busy machine to do so: once the certificate has ended nothing can renew it.
const signingDuration = 90 * time.Second

// A node that has a bootstrap token only: it runs static pods while its request waits for approval, gets a certificate,
// becomes Ready and runs pods; the certificate is renewed before it ends, which no pod notices; a restart goes on with
// the files.
func TestTLSBootstrap(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	if err := own.ControlPlane.RestartControllers(t.Context(), "--cluster-signing-duration="+
		signingDuration.String()); err != nil {
		t.Fatal(err)
	}
	own.Kubectl(t, "delete", "clusterrolebinding", "testbed:approve-first")
	approval := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		Groups: []string{"system:bootstrappers"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: "certificates.k8s.io",
			Resource: "certificatesigningrequests", Subresource: "nodeclient",
		},
	}}
	kit.Eventually(t, "first requests to be approved no more", func() error {
		answer, err := own.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), approval,
			metav1.CreateOptions{})
		if err == nil && answer.Status.Allowed {
			err = errors.New("the API server knows the binding still")
		}
		return err
	})
	bootstrap, err := own.ControlPlane.BootstrapKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	manifests := own.Bed.Path("manifests")
	static := strings.ReplaceAll(pod("early", staticSpec), "metadata:\n", "metadata:\n  namespace: kube-system\n")
	for _, err := range []error{os.MkdirAll(manifests, 0o755), os.WriteFile(filepath.Join(manifests, "early.yaml"),
		[]byte(static), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, pki := own.Bed.Path("kubelet.conf"), own.Bed.Path("kubelet-pki")
	ready := make(chan error, 1)
	go func() {
		ready <- own.StartNode(t.Context(), node.Kubelot, "--kubeconfig="+kubeconfig, "--bootstrap-kubeconfig="+bootstrap,
			"--rotate-certificates")
	}()
	csr := awaitRequest(t, own, "system:bootstrap:testbd")
	kit.Eventually(t, "the static pod to run without credentials", func() error { return runs(t, own, "early") })
	if _, err := os.Stat(kubeconfig); err == nil {
		t.Error("there is a kubeconfig before there is a certificate")
	}
	own.Kubectl(t, "certificate", "approve", csr)
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	first := storedCertificate(t, pki)
	if subject := first.Leaf.Subject; subject.CommonName != "system:node:"+kit.NodeName ||
		strings.Join(subject.Organization, " ") != "system:nodes" {
		t.Errorf("the certificate is of %s", subject)
	}
	checkMode(t, kubeconfig)
	checkMode(t, filepath.Join(pki, "kubelet-client-current.pem"))

	ns := own.Namespace(t)
	ns.Apply(pod("steady", staticSpec))
	before := ns.Running("steady")
	since := readySince(own.KubeNode(t))

	// The second one is obtained with the first, the third with the second.
	for range 2 {
		last := storedCertificate(t, pki).Leaf.SerialNumber
		kit.Eventually(t, "another certificate", func() error {
			if is := storedCertificate(t, pki).Leaf; is.SerialNumber.Cmp(last) == 0 {
				return fmt.Errorf("still the one that ends at %s", is.NotAfter)
			}
			return nil
		})
	}
	kit.Eventually(t, "the first certificate to end", func() error {
		if left := time.Until(first.Leaf.NotAfter); left > -time.Second {
			return fmt.Errorf("it ends in %s", left)
		}
		return nil
	})
	// Every daemon has the new one: a pod is watched, its ConfigMap read, its status written, its log authorised.
	ns.Apply(pod("later",
		"  containers: [{name: app, image: \"busybox:1.36\", command: [sh, -c, \"echo hello; sleep 1000\"], "+
			"envFrom: [{configMapRef: {name: kube-root-ca.crt}}]}]\n"))
	ns.Running("later")
	kit.Eventually(t, "the log", func() error {
		out, err := ns.TryKubectl("logs", "later")
		if err != nil || !strings.Contains(out, "hello") {
			return errors.Join(fmt.Errorf("it is %q", out), err)
		}
		return nil
	})
	sameStart(t, before, ns.Running("steady"))
	if now := readySince(own.KubeNode(t)); !now.Equal(&since) {
		t.Errorf("the node was Ready since %s, and since %s after the renewals", since, now)
	}

	// Without the bootstrap kubeconfig a restart has nothing but the files that were written.
	if err := errors.Join(own.Node.Kill(), os.Remove(bootstrap)); err != nil {
		t.Fatal(err)
	}
	if err := own.Node.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.Apply(pod("last", staticSpec))
	ns.Running("last")
	sameStart(t, before, ns.Running("steady"))
	for line := range strings.Lines(own.Kubectl(t, "get", "csr", "--no-headers")) {
		if strings.Contains(line, "system:bootstrap:") && !strings.Contains(line, csr) {
			t.Errorf("the node has bootstrapped again: %s", line)
		}
	}
}

// awaitRequest is the name of the one pending request for a client certificate by the user.
func awaitRequest(t *testing.T, own *kit.Bed, user string) (name string) {
	t.Helper()
	kit.Eventually(t, "the CertificateSigningRequest of "+user, func() error {
		all := own.Kubectl(t, "get", "csr", "--no-headers")
		for line := range strings.Lines(all) {
			if strings.Contains(line, user) && strings.Contains(line, "kubernetes.io/kube-apiserver-client-kubelet") &&
				strings.Contains(line, "Pending") {
				name = strings.Fields(line)[0]
				return nil
			}
		}
		return fmt.Errorf("there are just:\n%s", all)
	})
	if !strings.HasPrefix(name, "node-csr-") {
		t.Errorf("the request's name is %s", name)
	}
	return name
}

// runs reports whether a container of the pod runs on the node.
func runs(t *testing.T, own *kit.Bed, pod string) error {
	t.Helper()
	list, err := own.CRI.Runtime().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{
			State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		}},
	})
	if err != nil {
		return err
	}
	for _, c := range list.Containers {
		if strings.HasPrefix(c.Labels["io.kubernetes.pod.name"], pod) {
			return nil
		}
	}
	return fmt.Errorf("%d other containers run", len(list.Containers))
}

func storedCertificate(t *testing.T, pki string) tls.Certificate {
	t.Helper()
	// Read once, for it is replaced at any time.
	data, err := os.ReadFile(filepath.Join(pki, "kubelet-client-current.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func checkMode(t *testing.T, file string) {
	t.Helper()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: mode %v (%v); want 0600", file, info.Mode(), err)
	}
}

func readySince(n *corev1.Node) metav1.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// sameStart checks that the pod's container was not started again.
func sameStart(t *testing.T, before, after *corev1.Pod) {
	t.Helper()
	a, b := kit.Status(before, "app"), kit.Status(after, "app")
	if a.ContainerID != b.ContainerID || b.RestartCount != 0 {
		t.Errorf("the container was %s, and is %s with %d restarts", a.ContainerID, b.ContainerID, b.RestartCount)
	}
}
