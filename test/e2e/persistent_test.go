package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/e2e/kit"
)

// stillMounted is an error where nothing is mounted at path.
func stillMounted(path string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && !strings.Contains(string(info), " "+path+" ") {
		return fmt.Errorf("nothing is mounted at %s", path)
	}
	return err
}

// A directory of the node as a claim's volume: two pods share it, and it stays through a kill of the volume daemon, the
// end of a container and the end of its claim. Its data outlives the pods. TestClaimsWithoutAPIServer in test/e2e/crash
// does the like with disks.
func TestLocalVolume(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	pv := ns.Volume(kit.Local(dir), nil)
	const spec = `
  securityContext: {fsGroup: 4321, fsGroupChangePolicy: OnRootMismatch}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /sub, subPath: a/b}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data, readOnly: $RO}}]
`
	ns.Apply(ns.Claim("data", "") + pod("writer", strings.ReplaceAll(spec, "$RO", "false")))
	writer := ns.Running("writer")
	reading := strings.ReplaceAll(strings.ReplaceAll(spec, "$RO", "true"), ", {name: data, mountPath: /sub, subPath: a/b}",
		"")
	ns.Apply(pod("reader", reading))
	reader := ns.Running("reader")
	ns.Exec(writer, "app", "echo -n new > /data/new; echo -n below > /sub/file")
	ns.Equal(reader, "app", "cat /data/old /data/new /data/a/b/file; touch /data/x 2>/dev/null || echo no",
		"preciousnewbelowno")
	ns.Equal(writer, "app", "stat -c '%g %a' /data /data/old; stat -c %g /data/new", "4321 2775\n4321 660\n4321")

	point := filepath.Join(bed.Node.RootDir, "pods", string(writer.UID), "volumes/kubernetes.io~local-volume", pv)
	var before int
	kit.Eventually(t, "the volume daemon", func() error {
		var err error
		before, err = bed.Daemon("volume")
		return err
	})
	killVolumeDaemon(t)
	kit.Eventually(t, "the next volume daemon", func() error {
		if now, err := bed.Daemon("volume"); err != nil || now == before {
			return errors.Join(fmt.Errorf("it is %d", now), err)
		}
		return stillMounted(point)
	})
	// The next container of the pod gets the same volume, with its subPath.
	bed.KillContainer(t, writer, "app")
	writer = ns.Wait("writer", "restarted", func(p *corev1.Pod) bool {
		return kit.Ready(p) && kit.Status(p, "app").RestartCount == 1
	})
	ns.Equal(writer, "app", "cat /data/new /sub/file", "newbelow")

	// What is mounted needs no claim, nor does unmounting it.
	claims := bed.Client.CoreV1().PersistentVolumeClaims(ns.Name)
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Delete("writer", 1)
	ns.Gone(writer)
	kit.Eventually(t, "nothing of the first pod", func() error { return bed.Leftovers(t.Context(), writer) })
	ns.Equal(reader, "app", "cat /data/old", "precious")
	ns.Delete("reader", 1)
	ns.Gone(reader)
	kit.Eventually(t, "nothing of the second pod", func() error { return bed.Leftovers(t.Context(), reader) })
	for name, want := range map[string]string{"old": "precious", "new": "new", "a/b/file": "below"} {
		if err := contains(filepath.Join(dir, name), want); err != nil {
			t.Errorf("after the pods: %v", err)
		}
	}
}

// A disk as a claim's volume: it is formatted once, mounted once for all pods and unmounted after the last one.
func TestDiskVolume(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	pv := ns.Volume(kit.Local(kit.Disk(t)), func(s *corev1.PersistentVolumeSpec) { s.MountOptions = []string{"noatime"} })
	const spec = `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
	ns.Apply(ns.Claim("data", "") + pod("one", spec))
	one := ns.Running("one")
	ns.Equal(one, "app", "echo -n kept > /data/file; grep -c ' /data ext4 .*noatime' /proc/mounts", "1")
	ns.Apply(pod("two", spec))
	two := ns.Running("two")
	point := filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/local-volume/mounts", pv)
	ns.Delete("one", 1)
	ns.Gone(one)
	kit.Eventually(t, "nothing of the first pod", func() error { return bed.Leftovers(t.Context(), one) })
	if err := stillMounted(point); err != nil {
		t.Error(err)
	}
	ns.Equal(two, "app", "cat /data/file", "kept")
	ns.Delete("two", 1)
	ns.Gone(two)
	kit.Eventually(t, "the disk to be free", func() error {
		if _, err := os.Stat(point); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its mount point: %w", err)
		}
		return bed.Leftovers(t.Context(), two)
	})
	ns.Apply(pod("three", spec))
	ns.Equal(ns.Running("three"), "app", "cat /data/file", "kept")
	three := ns.Running("three")
	ns.Delete("three", 1)
	ns.Gone(three)
	// The disk is gone with the test: nobody may have it by then.
	kit.Eventually(t, "the disk to be free", func() error {
		if stillMounted(point) == nil {
			return errors.New("it is mounted")
		}
		return nil
	})
}

// A disk that a container gets as it is.
func TestBlockVolume(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	device := kit.Disk(t)
	block := corev1.PersistentVolumeBlock
	ns.Volume(kit.Local(device), func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = &block })
	const spec = `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeDevices: [{name: disk, devicePath: /dev/xvda}]}
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`
	ns.Apply(ns.Claim("disk", ", volumeMode: Block") + pod("raw", spec))
	p := ns.Running("raw")
	ns.Equal(p, "app", "test -b /dev/xvda && echo -n written | dd of=/dev/xvda bs=512 conv=sync,fsync 2>/dev/null && dd "+
		"if=/dev/xvda bs=7 count=1 2>/dev/null", "written")
	data := make([]byte, 7)
	file, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Read(data)
	_ = file.Close()
	if err != nil || string(data) != "written" {
		t.Errorf("the disk has %q (%v)", data, err)
	}
	bed.KillContainer(t, p, "app")
	p = ns.Wait("raw", "restarted", func(p *corev1.Pod) bool {
		return kit.Ready(p) && kit.Status(p, "app").RestartCount == 1
	})
	ns.Equal(p, "app", "dd if=/dev/xvda bs=7 count=1 2>/dev/null", "written")
	ns.Apply(pod("wrong", strings.Replace(spec, "volumeDevices: [{name: disk, devicePath: "+
		"/dev/xvda}]", "volumeMounts: [{name: disk, mountPath: /disk}]", 1)))
	ns.Event("wrong", "FailedMount", "volume disk has volumeMode Block, but is specified in volumeMounts")
	ns.Delete("wrong", 1)
	ns.Delete("raw", 1)
	ns.Gone(p)
	kit.Eventually(t, "the disk to be free", func() error {
		return errors.Join(kit.DiskHeld(p), bed.Leftovers(t.Context(), p))
	})
}

// A host path as a claim's volume, which brings a group of its own, and a claim that lives with its pod.
func TestHostPathAndEphemeralVolume(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	shared, own := t.TempDir(), t.TempDir()
	typ := corev1.HostPathDirectory
	pv := ns.Volume(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: shared, Type: &typ}},
		ns.For("shared", corev1.PersistentVolumeFilesystem))
	if _, err := bed.Client.CoreV1().PersistentVolumes().Patch(t.Context(), pv, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"pv.beta.kubernetes.io/gid":"2345"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Volume(kit.Local(own), ns.For("both-own", corev1.PersistentVolumeFilesystem))
	ns.Apply(ns.Claim("shared", "") + pod("both", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: shared, mountPath: /shared}, {name: own, mountPath: /own}]
  volumes:
  - {name: shared, persistentVolumeClaim: {claimName: shared}}
  - {name: own, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: `+ns.Name+`, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}
  - {name: unused, persistentVolumeClaim: {claimName: shared, readOnly: true}}
`))
	p := ns.Running("both")
	ns.Equal(p, "app", "echo -n a > /shared/a; echo -n b > /own/b; id -G | tr ' ' '\\n' | grep 2345", "2345")
	if err := errors.Join(contains(filepath.Join(shared, "a"), "a"), contains(filepath.Join(own, "b"), "b")); err != nil {
		t.Error(err)
	}
	ns.Delete("both", 1)
	ns.Gone(p)
	kit.Eventually(t, "nothing of the pod", func() error { return bed.Leftovers(t.Context(), p) })
	if err := errors.Join(contains(filepath.Join(shared, "a"), "a"), contains(filepath.Join(own, "b"), "b")); err != nil {
		t.Error(err)
	}
}

// A pod waits for its claim with an Event that says why, and starts once it is bound. A volume for one pod only is for
// one pod only. The scheduler, which would hold up both, isn't asked.
func TestClaimThatIsNotReady(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	once := func(s *corev1.PersistentVolumeSpec) {
		s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	const spec = `
  nodeName: ` + kit.NodeName + `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
	ns.Apply(strings.Replace(ns.Claim("data", ""), "ReadWriteOnce", "ReadWriteOncePod", 1) + pod("first", spec))
	ns.Event("first", "FailedMount", "error processing PVC "+ns.Name+"/data: PVC is not bound")
	ns.Volume(kit.Local(t.TempDir()), once)
	first := ns.Running("first")
	ns.Apply(pod("second", spec))
	ns.Event("second", "FailedMount", "volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	ns.Delete("first", 1)
	ns.Gone(first)
	began := time.Now()
	second := ns.Running("second")
	t.Logf("the second pod ran %v after the first was gone", time.Since(began))
	ns.Delete("second", 1)
	ns.Gone(second)
}
