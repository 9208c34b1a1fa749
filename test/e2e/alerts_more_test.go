package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// TestMoreAlerts breaks what takes a bed that is made for it: the kubelet's directory is on a small filesystem, the
// serving certificate ends soon, nobody may ask for another one, and each daemon has an executable of its own.
func TestMoreAlerts(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	programs := linked(t, own)
	kit.Loopback(t, own.Bed.Path("kubelet"), 64)
	certificate, key := endingCertificate(t)
	own.Config = "rotateCertificates: true\nserverTLSBootstrap: true\ntlsCertFile: " + certificate +
		"\ntlsPrivateKeyFile: " + key + "\n"
	apply(t, own, nobodyAsks)
	kit.Eventually(t, "the API server to refuse requests", func() error { return requestRefused(t, own) })
	if err := own.StartNode(t.Context(), node.Kubelot, "--bin-dir="+programs); err != nil {
		t.Fatal(err)
	}
	own.NotCompact(t, "one daemon gets another version, and one is stopped")
	p := startPrometheus(t, own)
	p.fireAll(t, map[string]string{
		`KubelotCertificateEnds",certificate="serving`:       "The serving certificate of ",
		`KubelotCertificateNotRenewed",certificate="client`:  "The client certificate of ",
		`KubelotCertificateNotRenewed",certificate="serving`: "The serving certificate of ",
	})
	p.noneFires(t, "KubelotVersionsDiffer", "KubelotFilesystemFills", "KubelotBusFull", "KubelotBusLag",
		"KubelotBusDropsReaders", "KubelotDaemonHangs", `KubelotCertificateEnds",certificate="client`)
	otherVersion(t, own, programs)
	p.fireAll(t, map[string]string{"KubelotVersionsDiffer": "are of 2 versions"})
	fillFilesystem(t, own.Node.RootDir, 90)
	p.fireAll(t, map[string]string{"KubelotFilesystemFills": "full."})
	busFails(t, own, p)
}

// shell runs a command on the node that must succeed.
func shell(t *testing.T, command string, args ...string) {
	t.Helper()
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", command, args, err, out)
	}
}

// linked is a directory with links to kubelot's executables, of which one can be replaced.
func linked(t *testing.T, own *kit.Bed) (dir string) {
	t.Helper()
	dir = t.TempDir()
	from := filepath.Dir(own.Program("kubelot"))
	programs, err := filepath.Glob(filepath.Join(from, "kubelot*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		file, err := filepath.EvalSymlinks(program)
		if err == nil {
			err = os.Symlink(file, filepath.Join(dir, filepath.Base(program)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// endingCertificate writes a certificate that has lived for most of its time, and ends in three days.
func endingCertificate(t *testing.T) (certificate, key string) {
	t.Helper()
	const day = 24 * time.Hour
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: kit.NodeName},
		NotBefore: time.Now().Add(-97 * day), NotAfter: time.Now().Add(3 * day), DNSNames: []string{kit.NodeName},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "serving.crt"), filepath.Join(dir, "serving.key")
	for path, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// nobodyAsks has the API server take no request for a certificate.
const nobodyAsks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-certificates}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [certificates.k8s.io]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [certificatesigningrequests]
  validations: [{expression: "false", message: nobody gets a certificate}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-certificates}
spec: {policyName: no-certificates, validationActions: [Deny]}
`

// apply applies what is in no namespace.
func apply(t *testing.T, own *kit.Bed, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	own.Kubectl(t, "apply", "-f", file)
}

// requestRefused is an error unless the policy is in force.
func requestRefused(t *testing.T, own *kit.Bed) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return err
	}
	_, err = own.Client.CertificatesV1().CertificateSigningRequests().Create(t.Context(),
		&certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "try"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: "example.com/none", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && strings.Contains(err.Error(), "nobody gets a certificate") {
		return nil
	}
	return fmt.Errorf("the answer is %w", err)
}

// otherVersion gives the daemon gc an executable that differs in the last character of its version, and starts it
// again.
func otherVersion(t *testing.T, own *kit.Bed, programs string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), own.Program("kubelot"), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := bytes.TrimSpace(bytes.TrimPrefix(out, []byte("kubelot ")))
	path := filepath.Join(programs, "kubelot-gc")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(version)
	other[len(other)-1] = 'x'
	if !bytes.Contains(text, version) || bytes.Equal(version, other) {
		t.Fatalf("%s doesn't have the version %q", path, version)
	}
	text = bytes.ReplaceAll(text, version, other)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	own.Signal(t, "gc", syscall.SIGKILL)
}

// fillFilesystem fills the one of the directory to that part in percent.
func fillFilesystem(t *testing.T, dir string, percent uint64) {
	t.Helper()
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	used := disk.Blocks - disk.Bfree
	size := int64(disk.Blocks*percent/100-used) * disk.Bsize
	file, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, size); err != nil {
		t.Fatal(err)
	}
}

// figuresMissing asks for the node's statistics, as a monitor does, while the runtime is away: it alone knows how much
// its images take up.
func figuresMissing(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	kit.Eventually(t, "the alert of figures that can't be read", func() error {
		_, err := own.TryPage(t.Context(), "stats", "/stats/summary")
		time.Sleep(time.Second)
		return errors.Join(err, p.fires(t.Context(), `KubelotFiguresUnreadable",source="image filesystem`,
			"can't be read: image filesystem"))
	})
}
