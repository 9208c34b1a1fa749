package clientcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"kubelot.dev/daemon/atomicfile"
)

// The kubelet's file names: kubeadm and others look for them.
const (
	prefix      = "kubelet-client-"
	nameCurrent = prefix + "current.pem"
	nameUpdated = prefix + "updated.pem"
	nameKey     = "kubelet-client.key.tmp"
	stampFormat = "2006-01-02-15-04-05"
)

// store is the directory with the node's client certificates: kubelet-client-<time>.pem, each a certificate with its
// key, and the link kubelet-client-current.pem to the one in use.
type store struct{ dir string }

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

// load is the certificate in use; fs.ErrNotExist where there is none.
func (s store) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(s.path(nameCurrent), s.path(nameCurrent))
	if err != nil {
		return nil, fmt.Errorf("client certificate %s: %w", s.path(nameCurrent), err)
	}
	return &pair, nil
}

// put makes a certificate and its key the one in use. A crash leaves the one before or the new one.
func (s store) put(cert, key []byte, now time.Time) error {
	if err := usable(cert, key, now); err != nil {
		return err
	}
	certs, err := certutil.ParseCertsPEM(cert)
	if err != nil {
		return fmt.Errorf("the new client certificate: %w", err)
	}
	var text bytes.Buffer
	for _, c := range certs {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	text.Write(key)
	file := s.path(prefix + now.Format(stampFormat) + ".pem")
	if err := writeFile(file, text.Bytes()); err != nil {
		return fmt.Errorf("store the new client certificate: %w", err)
	}
	if err := s.link(file); err != nil {
		return fmt.Errorf("activate the new client certificate: %w", err)
	}
	return nil
}

// usable returns an error that says why a certificate and its key are of no use; nil for a good pair.
func usable(cert, key []byte, now time.Time) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("the new client certificate: %w", err)
	}
	if now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the new client certificate ended at %s already", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// link makes the current link point to the file.
func (s store) link(file string) error {
	if info, err := os.Lstat(s.path(nameCurrent)); err == nil && info.Mode()&os.ModeSymlink == 0 {
		return fmt.Errorf("%s is a file; it must be a link: move it away", s.path(nameCurrent))
	}
	if err := os.Remove(s.path(nameUpdated)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(file, s.path(nameUpdated)); err != nil {
		return err
	}
	return os.Rename(s.path(nameUpdated), s.path(nameCurrent))
}

// pendingKey is the key of the request under way: the same over restarts, so that the request that waits for approval
// is found again. It is made where there is none.
func (s store) pendingKey() (crypto.Signer, []byte, error) {
	// One that can't be read, such as half a file, is as good as none.
	if text, err := os.ReadFile(s.path(nameKey)); err == nil {
		if parsed, err := keyutil.ParsePrivateKeyPEM(text); err == nil {
			if key, ok := parsed.(crypto.Signer); ok {
				return key, text, nil
			}
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the client certificate: %w", err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err == nil {
		err = writeFile(s.path(nameKey), text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the client certificate: %w", err)
	}
	return key, text, nil
}

// dropKey makes the next request one with another key.
func (s store) dropKey() error {
	if err := os.Remove(s.path(nameKey)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the used key of the client certificate: %w", err)
	}
	return nil
}

// writeFile replaces a file by one that only root can read, in a directory that it makes where there is none.
func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteDurably(path, text, 0o600)
}
