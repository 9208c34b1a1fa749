package clientcert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"kubelot.dev/daemon/config"
)

// signer answers requests with what sign makes of them. It keeps each request, as the API server does for an hour.
type signer struct {
	t    *testing.T
	sign func(n int, public any) certificatesv1.CertificateSigningRequestStatus
	made map[string]*certificatesv1.CertificateSigningRequest
}

func newSigner(t *testing.T, sign func(n int, public any) certificatesv1.CertificateSigningRequestStatus) *signer {
	t.Helper()
	return &signer{t: t, sign: sign, made: map[string]*certificatesv1.CertificateSigningRequest{}}
}

func (s *signer) Create(_ context.Context, r *certificatesv1.CertificateSigningRequest,
	_ metav1.CreateOptions,
) (*certificatesv1.CertificateSigningRequest, error) {
	if s.made[r.Name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "certificatesigningrequests"}, r.Name)
	}
	asked, err := parse(r.Spec.Request)
	if err != nil {
		s.t.Fatal(err)
	}
	r = r.DeepCopy()
	r.Status = s.sign(len(s.made), asked.PublicKey)
	s.made[r.Name] = r
	return r, nil
}

func (s *signer) Get(_ context.Context, name string,
	_ metav1.GetOptions,
) (*certificatesv1.CertificateSigningRequest, error) {
	return s.made[name], nil
}

func (s *signer) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewEmptyWatch(), nil
}

// approved is the status of a request that was signed with the certificate.
func approved(certificate []byte) certificatesv1.CertificateSigningRequestStatus {
	s := decided(certificatesv1.CertificateApproved)
	s.Certificate = certificate
	return s
}

func decided(as certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestStatus {
	return certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: as, Status: corev1.ConditionTrue}},
	}
}

// configured is a node with a bootstrap kubeconfig that renews its certificates.
func configured(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	c := &config.Config{
		NodeName: "n1", Kubeconfig: filepath.Join(dir, "conf"), BootstrapKubeconfig: filepath.Join(dir, "bootstrap"),
		CertDir: dir,
	}
	c.Kubelet.RotateCertificates = true
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]\n" +
		"clusters: [{name: x, cluster: {server: \"https://10.0.0.1:6443\"}}]\nusers: [{name: u, user: {token: secret}}]\n"
	if err := os.WriteFile(c.BootstrapKubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// runFor runs a manager for a time, and returns it after its end. Called again it is a restart of the daemon.
func runFor(t *testing.T, d time.Duration, c *config.Config, api Requests) *Manager {
	t.Helper()
	m, err := New(c, Ports{
		Dial:    func(string, string) (Requests, func(), error) { return api, func() {}, nil },
		Waiting: func(string) {}, Failed: func(error) {}, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	time.Sleep(d)
	cancel()
	<-done
	return m
}

// certificates makes certificates of public keys; all are signed by one authority.
func certificates(t *testing.T) (authority *ecdsa.PrivateKey, certificate func(public any, end time.Time) []byte) {
	t.Helper()
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return authority, func(public any, end time.Time) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: end}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, authority)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
}

// A request may have been signed with a certificate that is of no use: one that has ended while this daemon was away,
// or one of another key. Another request has to be made then: the same one would have the same answer as long as the
// API server keeps it.
func TestACertificateOfNoUseIsAskedForAnew(t *testing.T) {
	authority, certificate := certificates(t)
	for name, bad := range map[string]func(public any) []byte{
		"of another key": func(any) []byte { return certificate(authority.Public(), time.Now().Add(time.Hour)) },
		"ended":          func(public any) []byte { return certificate(public, time.Now().Add(-time.Minute)) },

		"not even a certificate": func(any) []byte { return []byte("nonsense") },
	} {
		t.Run(name, func(t *testing.T) {
			c := configured(t)
			synctest.Test(t, func(t *testing.T) {
				api := newSigner(t, func(n int, public any) certificatesv1.CertificateSigningRequestStatus {
					if n == 0 {
						return approved(bad(public))
					}
					return approved(certificate(public, time.Now().Add(24*time.Hour)))
				})
				m := runFor(t, 10*time.Minute, c, api)
				if _, err := m.store.load(); err != nil {
					t.Errorf("after ten minutes and %d requests: %v", len(api.made), err)
				}
			})
		})
	}
}

// Whoever approves requests by hand must find one, however long that takes and however often the daemon is restarted.
func TestARequestThatWaitsStaysTheOnlyOne(t *testing.T) {
	c := configured(t)
	synctest.Test(t, func(t *testing.T) {
		api := newSigner(t, func(int, any) certificatesv1.CertificateSigningRequestStatus {
			return certificatesv1.CertificateSigningRequestStatus{}
		})
		for range 3 {
			runFor(t, 8*time.Hour, c, api)
		}
		if len(api.made) != 1 {
			t.Errorf("there are %d requests after a day and two restarts, want 1", len(api.made))
		}
	})
}

func TestADeniedRequestIsMadeAnewRarely(t *testing.T) {
	c := configured(t)
	synctest.Test(t, func(t *testing.T) {
		api := newSigner(t, func(int, any) certificatesv1.CertificateSigningRequestStatus {
			return decided(certificatesv1.CertificateDenied)
		})
		if runFor(t, 9*time.Minute, c, api); len(api.made) != 2 {
			t.Errorf("%d requests in nine minutes, want 2", len(api.made))
		}
	})
}

// A certificate without its key may be left by a full disk or by a copy of the directory.
func TestHalfAPairIsReplaced(t *testing.T) {
	_, certificate := certificates(t)
	c := configured(t)
	synctest.Test(t, func(t *testing.T) {
		api := newSigner(t, func(_ int, public any) certificatesv1.CertificateSigningRequestStatus {
			return approved(certificate(public, time.Now().Add(24*time.Hour)))
		})
		m := runFor(t, time.Minute, c, api)
		pair, err := m.store.load()
		if err != nil {
			t.Fatal(err)
		}
		half := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
		if err := os.WriteFile(m.store.path(nameCurrent), half, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runFor(t, time.Minute, c, api).store.load(); err != nil {
			t.Errorf("a minute after a restart with half a pair: %v", err)
		}
	})
}
