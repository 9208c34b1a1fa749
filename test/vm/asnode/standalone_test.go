package asnode

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    imagePullPolicy: Never
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1 & wait; done']
`

// TestStandaloneBox follows the install page to a machine without a cluster. Its pod is there again after a reboot.
func TestStandaloneBox(t *testing.T) {
	runtimeByPage(t)
	for _, command := range commands(t, standaloneBox) {
		follow(t, command)
	}
	write(t, "/etc/kubernetes/manifests/box.yaml", staticPod)
	awaitBox(t)
	if err := node.Machine.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitBox(t)
	in(t, "rm /etc/kubernetes/manifests/box.yaml")
	eventually(t, "the pod to go", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "ctr -n k8s.io containers list -q")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("there are the containers %q", out)
		}
		return err
	})
	in(t, "systemctl disable -q --now kubelot.target && apt-get purge -q -y 'kubelot*'")
	nothingIsLeftOfBox(t)
}

// awaitBox waits until the box says that its pod runs.
func awaitBox(t *testing.T) {
	t.Helper()
	eventually(t, "the box to show its pod running", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "kubelot pods")
		if err == nil && (!strings.Contains(out, "box") || !strings.Contains(out, "Running")) {
			err = fmt.Errorf("it shows\n%s", out)
		}
		return err
	})
}

// nothingIsLeftOfBox checks that what was installed is gone, but for what the reader wrote.
func nothingIsLeftOfBox(t *testing.T) {
	t.Helper()
	if left := in(t, "pgrep -a kubelot; ls -d /usr/lib/kubelot /run/kubelot 2>/dev/null || true"); left != "" {
		t.Errorf("left of kubelot:\n%s", left)
	}
}
