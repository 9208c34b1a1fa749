package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// identityServer tells each client who it is, as a Node of that name.
func identityServer(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := "nobody"
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			user = certs[0].Subject.CommonName
		}
		if r.Header.Get("Authorization") != "" {
			user = r.Header.Get("Authorization")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"` + user + `","namespace":"` +
			r.URL.Path + `"}}`))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// pair writes a certificate that is signed by itself, and its key.
func pair(t *testing.T, file, name string, end time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: end.Add(-24 * time.Hour), NotAfter: end,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
	replace(t, file, text)
}

func replace(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// userOf is a kubeconfig for the server with the YAML of a user.
func userOf(server, user string) []byte {
	return []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: " +
		"{insecure-skip-tls-verify: true, server: \"" + server +
		"\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: " + user + "}]\n")
}

func whoAmI(t *testing.T, c *Client) (name, path string) {
	t.Helper()
	n, err := c.GetNode(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	return n.Name, n.Namespace
}

// becomes waits for the user, since files are looked at once a second.
func becomes(t *testing.T, c *Client, want string) {
	t.Helper()
	name := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if name, _ = whoAmI(t, c); name == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the server sees %s; want %s", name, want)
}

func options() Options {
	return Options{Daemon: "test", Log: slog.New(slog.DiscardHandler), ContentType: "application/json"}
}

func TestChangedFilesCountFromTheNextRequestOn(t *testing.T) {
	server, dir := identityServer(t), t.TempDir()
	config, cert := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "a.pem")
	pair(t, cert, "first", time.Now().Add(time.Hour))
	replace(t, config, userOf(server.URL, `{client-certificate: a.pem, client-key: a.pem}`))
	c, err := NewClient(config, options())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	becomes(t, c, "first")
	pair(t, cert, "second", time.Now().Add(time.Hour))
	becomes(t, c, "second")
	// What is no credential leaves the last one in use.
	replace(t, cert, []byte("half a file"))
	time.Sleep(lookEvery)
	becomes(t, c, "second")
	replace(t, config, userOf(server.URL+"/behind/a/proxy/", `{token: abc}`))
	becomes(t, c, "Bearer abc")
	if _, path := whoAmI(t, c); path != "/behind/a/proxy/api/v1/nodes/n" {
		t.Errorf("the path is %s", path)
	}
}

func TestRequestsWaitForCredentials(t *testing.T) {
	server, dir := identityServer(t), t.TempDir()
	config, cert := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "current.pem")
	o := options()
	o.Certificate = cert
	if _, err := NewClient(config, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), config) {
		t.Errorf("without a kubeconfig: %v", err)
	}
	c, err := Open(config, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// A request whose time is over before it begins doesn't say what it would have waited for.
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.GetNode(short, "n"); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "waiting for credentials") {
		t.Errorf("a request without credentials: %v", err)
	}
	answer := make(chan string)
	go func() {
		n, err := c.GetNode(t.Context(), "n")
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- n.Name
	}()
	// The kubeconfig's own user isn't meant where the certificate takes its place.
	replace(t, config, userOf(server.URL, `{token: abc}`))
	if _, err := NewClient(config, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), cert) {
		t.Errorf("without the certificate: %v", err)
	}
	pair(t, cert, "late", time.Now().Add(-time.Minute))
	if _, err := NewClient(config, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("with a certificate that has ended: %v", err)
	}
	pair(t, cert, "in-time", time.Now().Add(time.Hour))
	if name := <-answer; name != "in-time" {
		t.Errorf("the server sees %s", name)
	}
}

// A certificate and its key are written one after the other. Meanwhile the last ones stay in use, and a daemon that
// starts waits.
func TestAHalfWrittenPairIsWaitedFor(t *testing.T) {
	server, dir := identityServer(t), t.TempDir()
	config, cert, key := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	pair(t, first, "first", time.Now().Add(time.Hour))
	pair(t, second, "second", time.Now().Add(time.Hour))
	write := func(to, from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		replace(t, to, text)
	}
	replace(t, config, userOf(server.URL, `{client-certificate: a.crt, client-key: a.key}`))
	write(cert, first)
	for _, half := range []func(){
		func() { replace(t, key, nil) },
		func() { write(key, second) },
		func() { replace(t, cert, nil); write(key, first) },
		func() { replace(t, key, nil) },
	} {
		half()
		if _, err := NewClient(config, options()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with half of the pair: %v", err)
		}
	}
	c, err := Open(config, options())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write(cert, first)
	write(key, first)
	becomes(t, c, "first")
	for _, half := range []func(){
		func() { write(cert, second) },
		func() { replace(t, cert, nil) },
		func() { replace(t, key, nil) },
	} {
		half()
		time.Sleep(lookEvery)
		becomes(t, c, "first")
	}
	write(cert, second)
	write(key, second)
	becomes(t, c, "second")
}

func TestUnusableKubeconfigIsSaid(t *testing.T) {
	config := filepath.Join(t.TempDir(), "kubeconfig")
	replace(t, config, []byte("{nonsense"))
	if _, err := Open(config, options()); err == nil || !strings.Contains(err.Error(), config) {
		t.Errorf("error %v", err)
	}
}
