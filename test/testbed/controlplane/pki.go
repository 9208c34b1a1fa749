package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime of every certificate: longer than any test, short enough to be harmless.
const lifetime = 30 * 24 * time.Hour

// authority is the cluster's one CA; it signs servers, clients and kubelets.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// subject says what a certificate is for. A certificate with addresses is a
// server's, one without a client's.
type subject struct {
	file   string // base name of the files
	name   string // common name: the user, for clients
	groups []string
	dns    []string
	ips    []net.IP
}

// newAuthority makes a CA and its files ca.crt and ca.key in dir.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	key, err := newKey(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	template, err := newTemplate(subject{name: "kubelot-testbed-ca"})
	if err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	a := &authority{dir: dir, cert: template, key: key}
	der, err := a.sign(template, key)
	if err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	return a, writePEM(a.path("ca.crt"), "CERTIFICATE", der)
}

// issue writes <file>.crt and <file>.key.
func (a *authority) issue(s subject) error {
	key, err := newKey(a.path(s.file + ".key"))
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", s.file, err)
	}
	template, err := newTemplate(s)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", s.file, err)
	}
	der, err := a.sign(template, key)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", s.file, err)
	}
	return writePEM(a.path(s.file+".crt"), "CERTIFICATE", der)
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func newTemplate(s subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(s.ips) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.name, Organization: s.groups},
		// Back-dated: the clock of a virtual machine may lag behind.
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
		DNSNames:    s.dns,
		IPAddresses: s.ips,
	}, nil
}

// newKey makes a private key and writes it to path.
func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
