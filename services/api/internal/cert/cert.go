// Package cert is the serving certificate of the node's HTTPS API: the one that the configuration names, one signed
// by itself, or one that the cluster signs (CertificateSigningRequest, signer kubernetes.io/kubelet-serving) and rotates.
package cert

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Files are a certificate and its key. They are read again when they change; a pair that can't be read, or isn't one, leaves
// the last good one in use.
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

// SelfSigned are kubelet.crt and kubelet.key in dir, made where they don't exist yet, as the kubelet does it.
func SelfSigned(dir, host string, log *slog.Logger) (*Files, error) {
	certFile, keyFile := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	exist, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w: remove what is left of it, then it is made anew", err)
	}
	if !exist {
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err == nil {
			err = cmp.Or(certutil.WriteCert(certFile, cert), keyutil.WriteKey(keyFile, key))
		}
		if err != nil {
			return nil, fmt.Errorf("make a serving certificate signed by itself in %s: %w", dir, err)
		}
		log.Info("made a serving certificate that is signed by itself", "file", certFile)
	}
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
			f.log.Error("the changed serving certificate isn't usable, the one before stays in use", "error", err)
		}
		return f.current, nil
	}
	f.current, f.stamps = &pair, now
	return f.current, nil
}

func stamps(paths ...string) (all [2]stamp, err error) {
	for i, path := range paths {
		info, statErr := os.Stat(path)
		if statErr != nil {
			var pathErr *fs.PathError
			if errors.As(statErr, &pathErr) {
				statErr = pathErr.Err
			}
			return all, fmt.Errorf("%s: %w", path, statErr)
		}
		all[i] = stamp{info.ModTime(), info.Size()}
	}
	return all, nil
}

// NotAfter is when the certificate ends; false where there is none.
func NotAfter(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (time.Time, bool) {
	c, err := get(nil)
	if err != nil || c == nil {
		return time.Time{}, false
	}
	leaf := c.Leaf
	if leaf == nil && len(c.Certificate) > 0 {
		leaf, err = x509.ParseCertificate(c.Certificate[0])
	}
	if err != nil || leaf == nil {
		return time.Time{}, false
	}
	return leaf.NotAfter, true
}
