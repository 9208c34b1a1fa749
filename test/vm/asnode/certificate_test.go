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
	"net"
	"testing"
	"time"

	"kubelot.dev/test/vm/guest"
)

// clientCertificate gives the node a certificate most of whose life is over, and sees it renewed.
func clientCertificate(t *testing.T) {
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	since := readySince(t)
	old := "/var/lib/kubelet/pki/kubelet-client-old.pem"
	if err := node.Machine.Write(t.Context(), old, 0o600, agedCertificate(t, x509.ExtKeyUsageClientAuth)); err != nil {
		t.Fatal(err)
	}
	in(t, "ln -sfn "+old+" "+current+" && systemctl restart kubelot-lease")
	renewed(t, current, old)
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

// servingCertificateAgain gives the node's API a certificate most of whose life is over, and sees another one, which
// the administrator has to approve.
func servingCertificateAgain(t *testing.T) {
	const current, old = "/var/lib/kubelet/pki/kubelet-server-current.pem", "/var/lib/kubelet/pki/kubelet-server-old.pem"
	since := readySince(t)
	if err := node.Machine.Write(t.Context(), old, 0o600, agedCertificate(t, x509.ExtKeyUsageServerAuth)); err != nil {
		t.Fatal(err)
	}
	in(t, "ln -sfn "+old+" "+current+" && systemctl restart kubelot-api")
	approveServing(t)
	renewed(t, current, old)
	if left := time.Until(servingCertificate(t).NotAfter); left < 24*time.Hour {
		t.Errorf("the node's API has a certificate for %s", left)
	}
	if now := readySince(t); now != since {
		t.Errorf("the node is Ready since %s, before the renewal it was since %s", now, since)
	}
}

// renewed waits until the link doesn't lead to the old certificate any more.
func renewed(t *testing.T, current, old string) {
	t.Helper()
	eventually(t, "the certificate to be renewed", func(ctx context.Context) error {
		target, err := node.Machine.Run(ctx, "readlink "+current)
		if err == nil && target == old+"\n" {
			err = fmt.Errorf("the current certificate is still %s", old)
		}
		return err
	})
}

// agedCertificate is a certificate of the node with its key, signed by the cluster's authority, with one of a hundred
// hours left.
func agedCertificate(t *testing.T, usage x509.ExtKeyUsage) []byte {
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
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		DNSNames:     []string{guest.Name},
		IPAddresses:  []net.IP{node.Address.AsSlice()},
	}, authority.Leaf, &key.PublicKey, authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyText})...)
}
