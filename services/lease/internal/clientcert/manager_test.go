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

// signer answers requests with certificates that sign makes; it keeps each request, as the API server does for an hour.
type signer struct {
	t    *testing.T
	sign func(n int, public any) []byte
	made map[string]*certificatesv1.CertificateSigningRequest
}

func (s *signer) Create(_ context.Context, r *certificatesv1.CertificateSigningRequest, _ metav1.CreateOptions) (*certificatesv1.CertificateSigningRequest, error) {
	if s.made[r.Name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "certificatesigningrequests"}, r.Name)
	}
	asked, err := parse(r.Spec.Request)
	if err != nil {
		s.t.Fatal(err)
	}
	r = r.DeepCopy()
	r.Status.Certificate = s.sign(len(s.made), asked.PublicKey)
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	s.made[r.Name] = r
	return r, nil
}

func (s *signer) Get(_ context.Context, name string, _ metav1.GetOptions) (*certificatesv1.CertificateSigningRequest, error) {
	return s.made[name], nil
}

func (s *signer) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewEmptyWatch(), nil
}

// A request may have been signed with a certificate that is of no use: one that has ended while this daemon was away, or one of
// another key. Another request has to be made then: the same one would have the same answer as long as the API server keeps it.
func TestACertificateOfNoUseIsAskedForAnew(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(public any, end time.Time) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: end}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	for name, bad := range map[string]func(public any) []byte{
		"of another key":         func(any) []byte { return certificate(key.Public(), time.Now().Add(time.Hour)) },
		"ended":                  func(public any) []byte { return certificate(public, time.Now().Add(-time.Minute)) },
		"not even a certificate": func(any) []byte { return []byte("nonsense") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := &config.Config{NodeName: "n1", Kubeconfig: filepath.Join(dir, "conf"), BootstrapKubeconfig: filepath.Join(dir, "bootstrap"), CertDir: dir}
			c.Kubelet.RotateCertificates = true
			text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]\n" +
				"clusters: [{name: x, cluster: {server: \"https://10.0.0.1:6443\"}}]\nusers: [{name: u, user: {token: secret}}]\n"
			if err := os.WriteFile(c.BootstrapKubeconfig, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				api := &signer{t: t, made: map[string]*certificatesv1.CertificateSigningRequest{}, sign: func(n int, public any) []byte {
					if n == 0 {
						return bad(public)
					}
					return certificate(public, time.Now().Add(24*time.Hour))
				}}
				m, err := New(c, Ports{
					Dial:    func(string, string) (Requests, func(), error) { return api, func() {}, nil },
					Waiting: func(string) {}, Failed: func(error) {}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); m.Run(ctx) }()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if _, err := m.store.load(); err != nil {
					t.Errorf("after ten minutes and %d requests: %v", len(api.made), err)
				}
				cancel()
				<-done
			})
		})
	}
}
