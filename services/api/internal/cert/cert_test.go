package cert

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	if err := os.Remove(filepath.Join(dir, "kubelet.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := SelfSigned(dir, "node", quiet); err == nil {
		t.Error("a certificate without its key was taken")
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
