package node_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
)

const podManifest = `
apiVersion: v1
kind: Pod
metadata: {name: proof}
spec:
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]
`

const pulledManifest = `
apiVersion: v1
kind: Pod
metadata: {name: pulled}
spec:
  containers:
  - name: main
    image: example.com/team/busybox:1.36
    imagePullPolicy: Always
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]
`

// The whole bed once, with the upstream kubelet: what is built later against
// it can then only fail for its own reasons.
func TestUpstreamKubeletRunsPods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Out: os.Stderr, ControlPlane: true, Registry: true})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = c.Stop()
		}
	}()
	n, err := node.Start(ctx, c, node.Options{Agent: node.Kubelet})
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(input string, args ...string) string {
		t.Helper()
		return runKubectl(ctx, t, c, input, args...)
	}

	kubectl(podManifest, "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Ready", "pod/proof", "--timeout=180s")
	token := kubectl("", "exec", "proof", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	if strings.Count(token, ".") != 2 {
		t.Errorf("service-account token %q is no JWT", token)
	}
	if who := kubectl("", "--token", token, "auth", "whoami", "-o",
		"jsonpath={.status.userInfo.username}"); who != "system:serviceaccount:default:default" {
		t.Errorf("the token is of %q", who)
	}

	pullFromRegistry(ctx, t, c)
	kubectl(pulledManifest, "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Ready", "pod/pulled", "--timeout=180s")

	if _, err := c.ImportAgnhost(ctx); err != nil {
		t.Fatal(err)
	}
	kubectl("", "run", "agnhost", "--image="+images.AgnhostRef, "--image-pull-policy=Never",
		"--restart=Never", "--", "netexec")
	kubectl("", "wait", "--for=condition=Ready", "pod/agnhost", "--timeout=180s")

	c.ControlPlane.StopAPIServer()
	if err := c.ControlPlane.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	kubectl("", "delete", "pod", "proof", "pulled", "agnhost", "--timeout=180s")
	n.Stop()

	stopped = true
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	left, err := c.Bed.Leftovers()
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (error %v)", left, err)
	}
	if _, err := os.Stat(c.Bed.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", c.Bed.Dir, err)
	}
}

func runKubectl(ctx context.Context, t *testing.T, c *cluster.Cluster, input string, args ...string) string {
	t.Helper()
	access := []string{"--kubeconfig=" + c.ControlPlane.AdminKubeconfig()}
	if len(args) > 0 && args[0] == "--token" {
		// The administrator's client certificate would win over the token.
		access = []string{"--kubeconfig=/dev/null", "--server=" + c.ControlPlane.URL, "--certificate-authority=" +
			c.ControlPlane.CAFile()}
	}
	cmd := exec.CommandContext(ctx, c.Tools.Path("kubectl"), append(access, args...)...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(c.Bed.Dir, "home"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// pullFromRegistry puts the image where only a pull through the mirror finds it.
func pullFromRegistry(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	img := c.Busybox
	img.Ref = "example.com/team/busybox:1.36"
	if _, err := c.Registry.Push(ctx, img); err != nil {
		t.Fatal(err)
	}
}
