package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// TestClaimsWithoutAPIServer takes the API server away under a pod with a directory, a disk and a device of claims. A
// volume daemon that began meanwhile has its next containers start with all three, and frees them when it ends.
func TestClaimsWithoutAPIServer(t *testing.T) {
	// As with a kubelet, one that began without an API server restarts no containers of its pods before it answers.
	bed.NotCompact(t, "podsync begins with the volume daemon")
	ns := bed.Namespace(t)
	dir := t.TempDir()
	ns.Volume(kit.Local(dir), ns.For("dir", corev1.PersistentVolumeFilesystem))
	disk := ns.Volume(kit.Local(kit.Disk(t)), ns.For("disk", corev1.PersistentVolumeFilesystem))
	ns.Volume(kit.Local(kit.Disk(t)), ns.For("raw", corev1.PersistentVolumeBlock))
	ns.Apply(ns.Claim("dir", "") + ns.Claim("disk", "") + ns.Claim("raw", ", volumeMode: Block") + `
apiVersion: v1
kind: Pod
metadata: {name: claims}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'touch /disk/file && test -b /dev/raw && echo run >> /dir/runs; while [ ! -e /dir/end ]; do sleep 0.1; done; rm /dir/end; exit 1']
    volumeMounts: [{name: dir, mountPath: /dir}, {name: disk, mountPath: /disk}]
    volumeDevices: [{name: raw, devicePath: /dev/raw}]
  volumes:
  - {name: dir, persistentVolumeClaim: {claimName: dir}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
`)
	p := ns.Running("claims")
	runs := func(want int) {
		t.Helper()
		kit.Eventually(t, fmt.Sprintf("run %d of the container", want), func() error {
			data, err := os.ReadFile(filepath.Join(dir, "runs"))
			if n := bytes.Count(data, []byte("run\n")); err == nil && n != want {
				err = fmt.Errorf("%d runs", n)
			}
			return err
		})
	}
	runs(1)
	bed.ControlPlane.StopAPIServer()
	kill(t, bed, "volume")
	kit.Eventually(t, "the crew without an API server", crewRuns)
	end := filepath.Join(dir, "end")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runs(2)
	startAPIServer(t)
	for _, daemon := range []string{"volume", "podsync"} {
		kill(t, bed, daemon)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runs(3)

	ns.Delete("claims", 2)
	bed.ControlPlane.StopAPIServer()
	kill(t, bed, "volume")
	free := func() error {
		if _, err := os.Stat(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/local-volume/mounts",
			disk)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the disk's mount point: %w", err)
		}
		return kit.DiskHeld(p)
	}
	kit.Eventually(t, "the crew without an API server", crewRuns)
	startAPIServer(t)
	ns.Gone(p)
	kit.Eventually(t, "the disks to be free", free)
	kit.Eventually(t, "nothing of the pod", func() error { return bed.Leftovers(t.Context(), p) })
	if _, err := os.Stat(filepath.Join(dir, "runs")); err != nil {
		t.Errorf("the data: %v", err)
	}
}
