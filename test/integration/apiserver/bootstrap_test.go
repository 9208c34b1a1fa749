package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/lease"
)

// said is what a daemon said of itself.
type said struct {
	mu     sync.Mutex
	health []string
	events []topic.Event
}

func (s *said) Set(_ topic.HealthState, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = append(s.health, message)
}

func (s *said) Record(e topic.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *said) has(health, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.health, func(m string) bool { return strings.Contains(m, health) }) &&
		(reason == "" || slices.ContainsFunc(s.events, func(e topic.Event) bool { return e.Reason == reason }))
}

// newcomer is a node that has a bootstrap kubeconfig whose requests nobody approves by himself.
type newcomer struct {
	t    *testing.T
	api  *kubernetes.Clientset
	c    *config.Config
	user string
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	api, dir, ctx := admin(t), t.TempDir(), t.Context()
	ns := namespace(t, api)
	n := &newcomer{t: t, api: api, c: testConfig("node-" + ns), user: "system:serviceaccount:" + ns + ":default"}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:node-bootstrapper",
		},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "default"}},
	}
	if _, err := api.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.RbacV1().ClusterRoleBindings().Delete(context.Background(), ns, metav1.DeleteOptions{})
		_ = api.CoreV1().Nodes().Delete(context.Background(), n.c.NodeName, metav1.DeleteOptions{})
	})
	token, err := api.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := clientcmd.LoadFromFile(filepath.Join(bedDir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	bootstrap.AuthInfos = map[string]*clientcmdapi.AuthInfo{bootstrap.Contexts[bootstrap.CurrentContext].AuthInfo: {
		Token: token.Status.Token,
	}}
	n.c.BootstrapKubeconfig, n.c.Kubeconfig, n.c.CertDir = filepath.Join(dir, "bootstrap.conf"),
		filepath.Join(dir, "kubelet.conf"), filepath.Join(dir, "pki")
	n.c.Kubelet.RotateCertificates, n.c.ClientCertificate = true, filepath.Join(n.c.CertDir, "kubelet-client-current.pem")
	if err := clientcmd.WriteToFile(*bootstrap, n.c.BootstrapKubeconfig); err != nil {
		t.Fatal(err)
	}
	return n
}

// start runs the lease daemon until stop is called.
func (n *newcomer) start() (s *said, stop func()) {
	n.t.Helper()
	b := bustest.New()
	conn := b.Conn("lease")
	s = &said{}
	env := daemon.NewEnv(lease.Daemon, n.c, conn, slog.New(slog.DiscardHandler))
	env.Health, env.Events = s, s
	stats := b.Conn("stats")
	if err := topic.NodeMachine.Writer(stats).Set("", topic.Machine{
		NumCores: 2, MemoryBytes: 8 << 30,
		BootID: "b",
	}); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- daemon.RunWith(ctx, lease.Daemon, env) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
		stats.Close()
		conn.Close()
	})
	n.t.Cleanup(stop)
	return s, stop
}

// requests are the CertificateSigningRequests of the user.
func (n *newcomer) requests(user string) []certificatesv1.CertificateSigningRequest {
	n.t.Helper()
	all, err := n.api.CertificatesV1().CertificateSigningRequests().List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(r certificatesv1.CertificateSigningRequest) bool {
		return r.Spec.Username != user
	})
}

// judge waits for the request that has no verdict yet, and gives it one.
func (n *newcomer) judge(kind certificatesv1.RequestConditionType) string {
	n.t.Helper()
	var open certificatesv1.CertificateSigningRequest
	eventually(n.t, "a pending request", func() bool {
		for _, open = range n.requests(n.user) {
			if len(open.Status.Conditions) == 0 {
				return true
			}
		}
		return false
	})
	open.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: kind, Status: corev1.ConditionTrue,
		Reason: "Test", Message: "so be it",
	}}
	if _, err := n.api.CertificatesV1().CertificateSigningRequests().UpdateApproval(n.t.Context(), open.Name, &open,
		metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	return open.Name
}

func (n *newcomer) registered() {
	n.t.Helper()
	eventually(n.t, "the node", func() bool {
		_, err := n.api.CoreV1().Nodes().Get(n.t.Context(), n.c.NodeName, metav1.GetOptions{})
		return err == nil
	})
}

func TestBootstrap(t *testing.T) {
	n := newNewcomer(t)
	s, stop := n.start()
	eventually(t, "the wait to be told", func() bool { return s.has("waits to be approved", "") })
	pending := n.requests(n.user)
	stop()
	// A restart goes on with the same request.
	s, stop = n.start()
	eventually(t, "the wait to be told again", func() bool { return s.has("waits to be approved", "") })
	if again := n.requests(n.user); len(pending) != 1 || len(again) != 1 || again[0].UID != pending[0].UID {
		t.Errorf("there are %d requests, and %d after a restart", len(pending), len(again))
	}
	denied := n.judge(certificatesv1.CertificateDenied)
	eventually(t, "the refusal to be told", func() bool {
		return s.has("denied: Test: so be it", "FailedClientCertificate")
	})
	stop()
	// A denied request isn't asked again; the next one is another.
	_, stop = n.start()
	if approved := n.judge(certificatesv1.CertificateApproved); approved == denied {
		t.Errorf("%s was denied and approved", denied)
	}
	n.registered()
	if _, err := os.Stat(filepath.Join(n.c.CertDir, "kubelet-client.key.tmp")); err == nil {
		t.Error("the used key is left")
	}
	stop()

	// With the files, nothing is asked for again.
	if err := n.api.CoreV1().Nodes().Delete(t.Context(), n.c.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, stop = n.start()
	n.registered()
	stop()
	if all := n.requests(n.user); len(all) != 2 {
		t.Errorf("there are %d requests", len(all))
	}

	// A certificate that has ended is as good as none.
	pair, text := endedPair(t)
	if err := os.WriteFile(n.c.ClientCertificate, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop = n.start()
	n.judge(certificatesv1.CertificateApproved)
	eventually(t, "a new certificate", func() bool {
		is, err := tls.LoadX509KeyPair(n.c.ClientCertificate, n.c.ClientCertificate)
		return err == nil && is.Leaf.SerialNumber.Cmp(pair.SerialNumber) != 0
	})
	stop()
}

// The certificate in the kubeconfig itself becomes the stored one, and is renewed at once.
func TestCertificateOfTheKubeconfigIsRenewed(t *testing.T) {
	node, dir := nodeName(t), t.TempDir()
	n := &newcomer{t: t, api: admin(t), c: testConfig(node), user: "system:node:" + node}
	n.c.Kubelet.RotateCertificates, n.c.CertDir = true, dir
	n.c.ClientCertificate = filepath.Join(dir, "kubelet-client-current.pem")
	given, err := clientcmd.BuildConfigFromFlags("", nodeKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	first, err := tls.X509KeyPair(given.CertData, given.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	_, stop := n.start()
	eventually(t, "a certificate signed by the cluster", func() bool {
		is, err := tls.LoadX509KeyPair(n.c.ClientCertificate, n.c.ClientCertificate)
		return err == nil && is.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) != 0 &&
			is.Leaf.NotAfter.After(time.Now().Add(time.Hour))
	})
	n.registered()
	stop()
	if files, err := filepath.Glob(filepath.Join(dir, "kubelet-client-2*.pem")); err != nil || len(files) == 0 {
		t.Errorf("files %v (%v)", files, err)
	}
}

// endedPair is a certificate that has ended, as a file with its key.
func endedPair(t *testing.T) (*x509.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(-time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyText, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return template, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyText...)
}
