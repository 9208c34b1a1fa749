package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// TestFullDisk fills the file system under the root directory: what runs goes on with whole files, what comes says
// what is wrong and starts once there is room again, and what is deleted goes.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	root := own.Bed.Path("kubelet")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=4m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	// Eviction would end the pods.
	if err := own.StartNode(t.Context(), node.Kubelot, "--without=gc"); err != nil {
		t.Fatal(err)
	}
	ns := own.Namespace(t)
	const reader = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: "busybox:1.36", command: [sleep, "1000"], volumeMounts: [{name: c, mountPath: /c}, {name: e, mountPath: /e}]}
  volumes: [{name: c, configMap: {name: settings}}, {name: e, emptyDir: {}}]
`
	ns.Apply(settings + "\n---" + fmt.Sprintf(reader, "before") + "---" + fmt.Sprintf(reader, "goes"))
	before, goes := ns.Running("before"), ns.Running("goes")
	filling := filepath.Join(root, "filling")
	fill(t, filling)

	ns.Apply(fmt.Sprintf(reader, "during"))
	ns.Event("during", "FailedMount", "no space left on device")
	ns.Waiting("during", "app", "ContainerCreating")
	ns.Says("during", "can't be mounted: there is no room for it on this node's disk", "waits for: room on the disk")
	patch := []byte(`{"data":{"color":"blue"}}`)
	if _, err := own.Client.CoreV1().ConfigMaps(ns.Name).Patch(t.Context(), "settings", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Delete("goes", -1)
	ns.Gone(goes)
	if got := ns.Exec(before, "app", "cat /c/color"); got != "green" && got != "blue" {
		t.Errorf("the file of a pod that runs has %q; want it whole, old or new", got)
	}

	if err := os.Remove(filling); err != nil {
		t.Fatal(err)
	}
	during := ns.Running("during")
	if kit.Status(during, "app").RestartCount != 0 {
		t.Errorf("pod on a full disk: %+v", during.Status)
	}
	for _, p := range []*corev1.Pod{before, during} {
		kit.Eventually(t, "the new file in pod "+p.Name, func() error {
			got, err := ns.Try(p, "app", "cat /c/color")
			if err == nil && got != "blue" {
				return errors.New("it has " + got)
			}
			return err
		})
	}
	for _, p := range []*corev1.Pod{before, during} {
		ns.Delete(p.Name, -1)
		ns.Gone(p)
	}
	kit.Eventually(t, "the node to be clean", func() error { return own.Clean(t.Context()) })
}

// fill writes the file, at its end, until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// Big pieces first, then what is left.
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		piece := []byte(strings.Repeat("x", size))
		for err = nil; err == nil; {
			_, err = file.Write(piece)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}
