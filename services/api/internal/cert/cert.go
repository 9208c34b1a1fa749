// Package cert is the serving certificate of the node's HTTPS API: the one that the configuration names, one signed by
// itself, or one that the cluster signs (CertificateSigningRequest, signer kubernetes.io/kubelet-serving) and rotates.
package cert

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"kubelot.dev/daemon/atomicfile"
)

// Files are a certificate and its key. They are read again when they change; a pair that can't be read, or isn't one,
// leaves the last good one in use.
type Files struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	stamps  [2]stamp
	current *tls.Certificate
	failed  stamp
}

type stamp struct {
	at   time.Time
	size int64
}

// NewFiles reads the pair; the error names the files.
func NewFiles(certFile, keyFile string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: certFile, key: keyFile, log: log}
	if _, err := f.Get(nil); err != nil {
		return nil, err
	}
	return f, nil
}

// SelfSigned are kubelet.crt and kubelet.key in dir, as the kubelet names them. They are created if they don't
// exist, and replaced if one is missing or they aren't a pair, as after a crash.
func SelfSigned(dir, host string, log *slog.Logger) (*Files, error) {
	certFile, keyFile := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	files, err := NewFiles(certFile, keyFile, log)
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return files, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the self-signed serving certificate isn't usable, creating another one", "error", err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = atomicfile.WriteDurably(keyFile, key, 0o600)
	}
	if err == nil {
		err = atomicfile.WriteDurably(certFile, cert, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("create a self-signed serving certificate in %s: %w", dir, err)
	}
	log.Info("created a self-signed serving certificate", "file", certFile)
	return NewFiles(certFile, keyFile, log)
}

// Get is a tls.Config's GetCertificate.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := stamps(f.cert, f.key)
	if err == nil && f.current != nil && now == f.stamps {
		return f.current, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(f.cert, f.key)
	}
	if err != nil {
		err = fmt.Errorf("serving certificate %s with key %s: %w", f.cert, f.key, err)
		if f.current == nil {
			return nil, err
		}
		if f.failed != now[0] {
			f.failed = now[0]
			f.log.Error("can't use the changed serving certificate, the previous one stays in use", "error", err)
		}
		return f.current, nil
	}
	f.current, f.stamps = &pair, now
	return f.current, nil
}

func stamps(paths ...string) (all [2]stamp, err error) {
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return all, err
		}
		all[i] = stamp{info.ModTime(), info.Size()}
	}
	return all, nil
}

// NotAfter is when the certificate ends; false where there is none.
func NotAfter(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (time.Time, bool) {
	c, err := get(nil)
	if err != nil || c == nil || c.Leaf == nil {
		return time.Time{}, false
	}
	return c.Leaf.NotAfter, true
}
