package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// TestClaimsWithoutAPIServer takes the API server away under a pod with a directory, a disk and a device of claims. A
// volume daemon that began meanwhile has its next containers start with all three, and frees them when it ends.
func TestClaimsWithoutAPIServer(t *testing.T) {
	ns := bed.Namespace(t)
	dir, block := t.TempDir(), corev1.PersistentVolumeBlock
	localClaim(t, ns, "dir", dir, nil)
	mounted := localClaim(t, ns, "disk", loopDevice(t), nil)
	localClaim(t, ns, "raw", loopDevice(t), &block)
	ns.Apply(`
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
			if n := bytes.Count(data, []byte("run\n")); n != want {
				return fmt.Errorf("%d runs (%v)", n, err)
			}
			return nil
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
		if _, err := os.Stat(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/local-volume/mounts", mounted)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the disk's mount point: %w", err)
		}
		out, err := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output()
		if err == nil && strings.Contains(string(out), string(p.UID)) {
			err = fmt.Errorf("the device is held: %s", out)
		}
		return err
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

// localClaim makes a claim of that name that is bound to a volume at path, and returns the volume's name.
func localClaim(t *testing.T, ns *kit.Namespace, name, path string, mode *corev1.PersistentVolumeMode) string {
	t.Helper()
	volume := ns.Name + "-" + name
	_, err := bed.Client.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}, VolumeMode: mode,
			ClaimRef:    &corev1.ObjectReference{Namespace: ns.Name, Name: name},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ns.Name,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bed.Client.CoreV1().PersistentVolumes().Delete(context.Background(), volume, metav1.DeleteOptions{})
	})
	text := corev1.PersistentVolumeFilesystem
	if mode != nil {
		text = *mode
	}
	ns.Apply(fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {storageClassName: %s, volumeName: %s, "+
		"volumeMode: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n", name, ns.Name, volume, text))
	return volume
}

// loopDevice is a disk of 64 MiB.
func loopDevice(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("make a loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}
