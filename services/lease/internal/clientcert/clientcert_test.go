package clientcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func until(hours int) *x509.Certificate {
	return &x509.Certificate{NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(time.Duration(hours) * time.Hour)}
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		facts facts
		want  step
	}{
		"standing kubeconfig": {facts{kubeconfig: user{usable: true}}, step{kind: finished}},
		"standing kubeconfig beats bootstrap": {
			facts{bootstrap: true, kubeconfig: user{usable: true}},
			step{kind: finished},
		},
		"nothing, and nothing to do about it": {facts{}, step{kind: helpless}},
		"bootstrap once":                      {facts{bootstrap: true}, step{kind: ask, by: asBootstrap}},
		"bootstrap once more after the end": {
			facts{bootstrap: true, stored: until(-1), kubeconfig: user{refers: true}},
			step{kind: ask, by: asBootstrap},
		},
		"killed before the kubeconfig": {facts{bootstrap: true, stored: until(1)}, step{kind: refer}},
		"rotation: bootstrap":          {facts{rotate: true, bootstrap: true}, step{kind: ask, by: asBootstrap}},
		"rotation: killed before the kubeconfig": {facts{
			rotate: true, bootstrap: true, stored: until(9),
			renewAt: now.Add(1),
		}, step{kind: refer}},
		"rotation: not yet": {facts{
			rotate: true, stored: until(9), renewAt: now.Add(1),
			kubeconfig: user{usable: true},
		}, step{kind: wait, at: now.Add(1)}},
		"rotation: due": {facts{
			rotate: true, bootstrap: true, stored: until(9), renewAt: now,
			kubeconfig: user{usable: true},
		}, step{kind: ask, by: asStored}},
		"rotation: ended, with bootstrap": {facts{
			rotate: true, bootstrap: true, stored: until(-1),
			kubeconfig: user{refers: true},
		}, step{kind: ask, by: asBootstrap}},
		"rotation: ended, without": {
			facts{rotate: true, stored: until(-1), kubeconfig: user{refers: true}},
			step{kind: helpless},
		},
		"rotation: certificate in the kubeconfig": {
			facts{rotate: true, bootstrap: true, kubeconfig: user{usable: true, own: until(1), embedded: true}},
			step{kind: adopt},
		},
		"rotation: the stored one beats the kubeconfig's": {
			facts{rotate: true, stored: until(9), renewAt: now, kubeconfig: user{usable: true, own: until(1)}},
			step{kind: ask, by: asStored},
		},
		"rotation: the kubeconfig's has ended": {facts{rotate: true, kubeconfig: user{own: until(-1)}}, step{kind: helpless}},
		"rotation: a token": {
			facts{rotate: true, kubeconfig: user{usable: true}},
			step{kind: ask, by: asKubeconfig},
		},
	} {
		c.facts.now = now
		if got := decide(c.facts); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
}

func TestRenewal(t *testing.T) {
	year := &x509.Certificate{NotBefore: now, NotAfter: now.Add(1000 * time.Hour)}
	different := map[time.Time]bool{}
	for range 100 {
		at := renewal(year, now)
		if at.Before(now.Add(700*time.Hour)) || at.After(now.Add(900*time.Hour)) {
			t.Errorf("renewal after %s of 1000 hours", at.Sub(now))
		}
		different[at] = true
	}
	if len(different) < 50 {
		t.Error("all nodes would renew at the same time")
	}
	// Dated back by five minutes, and good for one.
	short := &x509.Certificate{NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Minute)}
	if at := renewal(short, now); at.Before(now.Add(30*time.Second)) || at.After(short.NotAfter) {
		t.Errorf("a short-lived certificate is renewed at %s", at)
	}
}

// signed is a certificate of the key.
func signed(t *testing.T, key any, public any, end time.Time) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestStore(t *testing.T) {
	s := store{filepath.Join(t.TempDir(), "pki")}
	if _, err := s.load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty store: %v", err)
	}
	key, text, err := s.pendingKey()
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := s.pendingKey(); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the key of the request under way changed (%v)", err)
	}
	good := signed(t, key, key.Public(), now.Add(time.Hour))
	if err := s.put(good, text, now); err != nil {
		t.Fatal(err)
	}
	file := s.path("kubelet-client-2026-11-21-12-00-00.pem")
	if target, err := os.Readlink(s.path("kubelet-client-current.pem")); err != nil || target != file {
		t.Errorf("the link leads to %s (%v)", target, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if pair, err := s.load(); err != nil || !pair.Leaf.NotAfter.Equal(now.Add(time.Hour)) {
		t.Errorf("it is read back as %v, %v", pair, err)
	}
	// What can't be used leaves the one before in use.
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"nonsense":    []byte("x"),
		"another key": signed(t, other, other.Public(), now.Add(time.Hour)),
		"ended":       signed(t, key, key.Public(), now.Add(-time.Minute)),
	} {
		if err := s.put(bad, text, now.Add(time.Second)); err == nil {
			t.Errorf("%s was stored", name)
		}
	}
	if target, err := os.Readlink(s.path("kubelet-client-current.pem")); err != nil || target != file {
		t.Errorf("the link leads to %s (%v)", target, err)
	}
	// A key that was half written is created again.
	if err := os.WriteFile(s.path("kubelet-client.key.tmp"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, again, err := s.pendingKey(); err != nil || bytes.Equal(again, text) {
		t.Errorf("after a half-written key: %v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	bootstrap, config, current := filepath.Join(dir, "bootstrap"), filepath.Join(dir, "etc", "kubelet.conf"),
		filepath.Join(dir, "current.pem")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]\n" +
		"clusters: [{name: x, cluster: {server: \"https://10.0.0.1:6443\", tls-server-name: api, insecure-skip-tls-verify: " +
		"true}}]\nusers: [{name: u, user: {token: secret}}]\n"
	if err := os.WriteFile(bootstrap, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeKubeconfig(config, bootstrap, current); err != nil {
		t.Fatal(err)
	}
	is, err := clientcmd.LoadFromFile(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, who := is.Clusters["default-cluster"], is.AuthInfos["default-auth"]
	if cluster == nil || cluster.Server != "https://10.0.0.1:6443" || cluster.TLSServerName != "api" || who == nil ||
		who.ClientCertificate != current || who.Token != "" {
		t.Errorf("kubeconfig %+v, %+v", cluster, who)
	}
	if u, _, _ := kubeconfigUser(config, current, now); u.usable || !u.refers {
		t.Errorf("without its certificate: %+v", u)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyText, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(current, append(signed(t, key, key.Public(), now.Add(time.Hour)), keyText...),
		0o600); err != nil {
		t.Fatal(err)
	}
	u, cert, keyOfIt := kubeconfigUser(config, "elsewhere", now)
	if !u.usable || u.refers || u.own == nil || u.embedded {
		t.Errorf("with a certificate of its own: %+v", u)
	}
	if _, err := tls.X509KeyPair(cert, keyOfIt); err != nil {
		t.Errorf("its pair: %v", err)
	}
	if u, _, _ := kubeconfigUser(config, current, now.Add(2*time.Hour)); u.usable || u.own != nil {
		t.Errorf("after its end: %+v", u)
	}
	if u, _, _ := kubeconfigUser(bootstrap, current, now); !u.usable || u.own != nil {
		t.Errorf("with a token: %+v", u)
	}
}
