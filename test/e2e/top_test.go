package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/proc"
)

// metricsAPI has the API server hand metrics.k8s.io on to a metrics-server on this machine. The bed's API server has no
// front-proxy certificate, so metrics-server sees nobody's requests, and nobody may read metrics.
const metricsAPI = `apiVersion: v1
kind: Service
metadata: {name: metrics-server}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics-server, namespace: $NS, port: $PORT}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "$NS-top"}
rules:
- {apiGroups: [metrics.k8s.io], resources: [pods, nodes], verbs: [get, list]}
- {nonResourceURLs: [/apis, /apis/*, /openapi/*], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "$NS-top"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "$NS-top"}
subjects: [{kind: Group, name: "system:unauthenticated", apiGroup: rbac.authorization.k8s.io}]
`

// kubectl top shows what a real metrics-server has read from the node.
func TestTop(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	program, err := bed.Tools.EnsureMetricsServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(pod("burner", burner))
	dir, config := t.TempDir(), bed.ControlPlane.AdminKubeconfig()
	_, port, err := net.SplitHostPort(freeAddress(t, bed))
	if err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Spec{Name: "metrics-server", Path: program, Dir: dir, Args: []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--secure-port=" + port, "--bind-address=127.0.0.1", "--cert-dir=" + filepath.Join(dir, "certs"),
		"--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s",
		"--kubelet-request-timeout=8s", "--kubelet-use-node-status-port",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(10 * time.Second)
		if out, err := os.ReadFile(p.LogPath()); err == nil && t.Failed() {
			t.Logf("metrics-server says:\n%s", out[max(0, len(out)-4000):])
		}
	})
	manifest := filepath.Join(dir, "api.yaml")
	if err := os.WriteFile(manifest, []byte(strings.NewReplacer("$NS", ns.Name, "$PORT", port).Replace(metricsAPI)),
		0o600); err != nil {
		t.Fatal(err)
	}
	ns.Kubectl("apply", "-f", manifest)
	defer ns.Kubectl("delete", "--ignore-not-found", "-f", manifest)
	ns.Wait("burner", "ready", kit.Ready)
	kit.Eventually(t, "kubectl top", func() error {
		out, err := ns.TryKubectl("top", "pod", "burner", "--containers", "--no-headers")
		fields := strings.Fields(out)
		if err != nil || len(fields) != 4 || fields[1] != "burner" {
			why, _ := ns.TryKubectl("get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "jsonpath={.status.conditions}")
			return errors.Join(fmt.Errorf("kubectl top pod: %s: %s", out, why), err)
		}
		var milli, mebi int
		if _, err := fmt.Sscanf(fields[2]+" "+fields[3], "%dm %dMi", &milli, &mebi); err != nil || milli < 20 ||
			milli > 260 || mebi < 19 || mebi > 40 {
			return fmt.Errorf("kubectl top pod shows %s, want up to a fifth of a core and some 20 MiB", out)
		}
		out, err = ns.TryKubectl("top", "node", "--no-headers")
		if err != nil || !strings.HasPrefix(out, kit.NodeName) || strings.Contains(out, "<unknown>") {
			return errors.Join(fmt.Errorf("kubectl top node: %s", out), err)
		}
		return nil
	})
}
