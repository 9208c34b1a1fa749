package cert

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
)

var quiet = slog.New(slog.DiscardHandler)

func TestSelfSignedIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := SelfSigned(dir, "node", quiet)
	if err != nil {
		t.Fatal(err)
	}
	second, err := SelfSigned(dir, "node", quiet)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := first.Get(nil)
	b, _ := second.Get(nil)
	if a == nil || b == nil || !bytes.Equal(a.Certificate[0], b.Certificate[0]) {
		t.Error("a restart made another certificate")
	}
	if end, ok := NotAfter(first.Get); !ok || end.Before(time.Now().Add(24*time.Hour)) {
		t.Errorf("it ends at %s", end)
	}
}

// What a crash or a full disk leaves is no reason not to serve: half a pair is made anew.
func TestHalfAPairIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	other := t.TempDir()
	if _, err := SelfSigned(other, "other", quiet); err != nil {
		t.Fatal(err)
	}
	strange, err := os.ReadFile(filepath.Join(other, "kubelet.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"no key":          func() error { return os.Remove(key) },
		"no certificate":  func() error { return os.Remove(cert) },
		"an empty key":    func() error { return os.WriteFile(key, nil, 0o600) },
		"half of the key": func() error { return os.Truncate(key, 100) },
		"another's key":   func() error { return os.WriteFile(key, strange, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			before, err := SelfSigned(dir, "node", quiet)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := before.Get(nil)
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			after, err := SelfSigned(dir, "node", quiet)
			if err != nil {
				t.Fatal(err)
			}
			b, err := after.Get(nil)
			if err != nil || bytes.Equal(a.Certificate[0], b.Certificate[0]) {
				t.Errorf("it isn't made anew: %v", err)
			}
			if info, err := os.Stat(key); err != nil || info.Mode() != 0o600 {
				t.Errorf("the key has the mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// A stored certificate that is none is asked for anew, and not a reason to end at each start.
func TestABrokenSignedCertificateIsAskedForAnew(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no certificate": "nonsense", "half": "-----BEGIN CERTIFICATE-----\nMIIB",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stored := filepath.Join(dir, "kubelet-server-2026-01-01-00-00-00.pem")
			if err := os.WriteFile(stored, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(stored, filepath.Join(dir, "kubelet-server-current.pem")); err != nil {
				t.Fatal(err)
			}
			request := Request{Node: "n", Dir: dir, Metrics: prometheus.NewRegistry(), Log: quiet}
			signed, err := NewSigned(request, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := signed.Get(nil); !errors.Is(err, errUnsigned) {
				t.Errorf("it serves with what is stored: %v", err)
			}
		})
	}
}

// One that is good is kept.
func TestASignedCertificateIsKept(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := certutil.GenerateSelfSignedCertKey("n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubelet-server-current.pem"), append(cert, key...), 0o600); err != nil {
		t.Fatal(err)
	}
	signed, err := NewSigned(Request{Node: "n", Dir: dir, Metrics: prometheus.NewRegistry(), Log: quiet}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signed.Get(nil); err != nil {
		t.Error(err)
	}
}

func TestFilesFollowChanges(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	age := time.Now().Add(-time.Hour)
	put := func(host string) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		age = age.Add(time.Second)
		for path, data := range map[string][]byte{certFile: cert, keyFile: key} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, age, age); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := NewFiles(certFile, keyFile, quiet); err == nil {
		t.Error("no files, and no error")
	}
	put("one")
	f, err := NewFiles(certFile, keyFile, quiet)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := f.Get(nil)
	if again, _ := f.Get(nil); again != first {
		t.Error("an unchanged file was read again")
	}
	put("two")
	second, _ := f.Get(nil)
	if bytes.Equal(second.Certificate[0], first.Certificate[0]) {
		t.Error("the changed certificate isn't served")
	}
	if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, err := f.Get(nil); err != nil || kept != second {
		t.Errorf("a broken file replaced the good certificate: %v", err)
	}
}

func TestTemplate(t *testing.T) {
	if template("n", []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}) != nil {
		t.Error("a certificate without an IP address is asked for")
	}
	r := template("n", []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeExternalIP, Address: "nonsense"},
		{Type: corev1.NodeHostName, Address: "n"},
		{Type: corev1.NodeInternalDNS, Address: ""},
	})
	if r == nil || r.Subject.CommonName != "system:node:n" || r.Subject.Organization[0] != "system:nodes" ||
		len(r.DNSNames) != 1 || len(r.IPAddresses) != 1 || !r.IPAddresses[0].Equal(net.IPv4(10, 0, 0, 2)) {
		t.Errorf("template %+v", r)
	}
}
