package asnode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"kubelot.dev/test/vm/guest"
)

// clientCertificate gives the node a certificate most of whose life is over, and sees it renewed.
func clientCertificate(t *testing.T) {
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	since := readySince(t)
	old := "/var/lib/kubelet/pki/kubelet-client-old.pem"
	if err := node.Machine.Write(t.Context(), old, 0o600, agedCertificate(t)); err != nil {
		t.Fatal(err)
	}
	in(t, "ln -sfn "+old+" "+current+" && systemctl restart kubelot-lease")
	eventually(t, "the certificate to be renewed", func(ctx context.Context) error {
		target, err := node.Machine.Run(ctx, "readlink "+current)
		if err == nil && target == old+"\n" {
			err = fmt.Errorf("the current certificate is still %s", old)
		}
		return err
	})
	cert, _ := pem.Decode([]byte(in(t, "cat "+current)))
	if cert == nil {
		t.Fatalf("%s has no certificate", current)
	}
	parsed, err := x509.ParseCertificate(cert.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(parsed.NotAfter); left < 24*time.Hour || parsed.Subject.CommonName != "system:node:"+guest.Name {
		t.Errorf("the new certificate is of %s, for %s", parsed.Subject, left)
	}
	awaitReady(t)
	if now := readySince(t); now != since {
		t.Errorf("the node is Ready since %s, before the renewal it was since %s", now, since)
	}
}

// agedCertificate is a certificate of the node with its key, signed by the cluster's authority, with one of a hundred
// hours left.
func agedCertificate(t *testing.T) []byte {
	t.Helper()
	authority, err := tls.LoadX509KeyPair(node.ControlPlane.CAFile(), node.Bed.Path("pki")+"/ca.key")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyText, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "system:node:" + guest.Name, Organization: []string{"system:nodes"}},
		NotBefore:    time.Now().Add(-99 * time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority.Leaf, &key.PublicKey, authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyText})...)
}
