package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// The serving certificate that the cluster signs, of a second api daemon on this node with another port.
func TestServingCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ports, err := bed.Bed.Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	port := ports[0]
	text, err := os.ReadFile(bed.Node.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		switch key, _, _ := strings.Cut(line, ":"); key {
		case "port", "address", "healthzPort":
		default:
			lines = append(lines, line)
		}
	}
	config := strings.Join(lines, "") + fmt.Sprintf("\nport: %d\naddress: 127.0.0.1\nhealthzPort: "+
		"0\nserverTLSBootstrap: true\n", port)
	run := bed.Bed.Path("run")
	kubeconfig, err := bed.ControlPlane.NodeKubeconfig(kit.NodeName)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(dir+"/kubelet.yaml", []byte(config), 0o600),
		os.Symlink(filepath.Join(run, "keys"), dir+"/keys"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), bed.Program("kubelot-api"), "--config="+dir+"/kubelet.yaml",
		"--kubeconfig="+kubeconfig,
		"--run-dir="+dir, "--bus-socket="+filepath.Join(run, "bus.sock"), "--root-dir="+dir,
		"--cert-dir="+filepath.Join(dir, "pki"), "--hostname-override="+kit.NodeName)
	var log kit.Session
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	kit.Eventually(t, "the node's CertificateSigningRequest", func() error {
		for line := range strings.Lines(bed.Kubectl(t, "get", "csr", "--no-headers")) {
			if fields := strings.Fields(line); strings.Contains(line, "kubernetes.io/kubelet-serving") &&
				strings.Contains(line, "Pending") {
				bed.Kubectl(t, "certificate", "approve", fields[0])
				return nil
			}
		}
		return fmt.Errorf("there is none; kubelot-api says:\n%s", log.String())
	})
	ca, err := os.ReadFile(bed.ControlPlane.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	kit.Eventually(t, "a certificate that the cluster has signed", func() error {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port),
			&tls.Config{RootCAs: roots, ServerName: bed.Bed.Gateway.String()})
		if err != nil {
			return err
		}
		defer conn.Close()
		if name := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "system:node:"+kit.NodeName {
			t.Errorf("the certificate is of %s", name)
		}
		return nil
	})
	kit.Eventually(t, "the certificate and its link to be kept", func() error {
		files, err := filepath.Glob(dir + "/pki/kubelet-server-*.pem")
		if err == nil && len(files) < 2 {
			err = fmt.Errorf("kept are %v", files)
		}
		return err
	})
}
