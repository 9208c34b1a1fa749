package gc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/harness/images"
)

// The inodes of the root directory's filesystem get short: the pod that has most files is evicted, and not the one whose few files
// are large.
func TestInodePressure(t *testing.T) {
	t.Parallel()
	const threshold = 10_000 // of 20,000
	var root string
	bed := start(t, "evictionHard: {nodefs.inodesFree: 10k}\n"+transition, func(b *kit.Bed) {
		root = b.Bed.Path("kubelet")
		loopback(t, root, 512)
	})
	ns := bed.Namespace(t)
	data := func(name, does string) string {
		return pod(name, `
  initContainers:
  - {name: fill, image: "busybox:1.36", command: [sh, -c, "`+does+`"], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`)
	}
	ns.Apply(data("large", "fallocate -l 200M /data/much") + "---\n" + data("some", files("/data", 1000)))
	ns.Running("large")
	ns.Running("some")
	calm := bed.KubeNode(t)
	crossed := crossing(t, func() (bool, error) {
		disk, err := statfs(root)
		return disk.Ffree < threshold, err
	})
	ns.Apply(data("hog", files("/data", 15_000)))
	if rest := low(t, ns, "hog", "inodes", "10k", "10k"); rest != "" {
		t.Errorf("the message ends with %q; the kubelet names no containers", rest)
	}
	if got := evictions(t, bed, crossed()); got != "hog" {
		t.Errorf("evicted: %s", got)
	}
	relieved(t, bed, calm, corev1.NodeDiskPressure)
	unharmed(t, ns, "large", "some")
}

// files is a command that makes so many empty files.
func files(dir string, n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do : > %s/$i; i=$((i+1)); done", n, dir)
}

func statfs(path string) (disk syscall.Statfs_t, err error) {
	err = syscall.Statfs(path, &disk)
	return disk, err
}

// The filesystem of images and writable layers gets short: unused images go first, and nobody is evicted if that is enough. Else the
// pod is that has written most there, whatever others have in volumes elsewhere; of inodes too. A threshold of containerfs counts for
// nothing: where writable layers are with the images, those of imagefs are theirs.
func TestImageDiskPressure(t *testing.T) {
	t.Parallel()
	const (
		threshold, spare, padded = 250, 40, 60 // MiB
		inodes                   = 8000
		unused                   = "docker.io/library/unused:1"
	)
	config := fmt.Sprintf("evictionHard: {imagefs.available: %dMi, imagefs.inodesFree: 8k, containerfs.available: 100Ti}\n", threshold)
	var root string
	bed := start(t, config+"imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 1ms\n"+transition, func(b *kit.Bed) {
		root = imagesOn(t, b, 640)
		load(t, b, unused, padded)
	})
	ns := bed.Namespace(t)
	ns.Apply(layered("hog", "") + "---\n" + layered("files", "") + "---\n" + layered("modest", "dd if=/dev/zero of=/some bs=1M count=30; ") + "---\n" + pod("volume", `
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, 'fallocate -l 1G /data/much; `+forever+`'], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`))
	hog, many := ns.Running("hog"), ns.Running("files")
	ns.Running("modest")
	ns.Running("volume")
	kit.Eventually(t, "gc to know the images", func() error {
		_, err := os.Stat(filepath.Join(bed.Bed.Path("run"), "gc", "images.json"))
		return err
	})
	calm := bed.KubeNode(t)
	// left is how much of the filesystem the hog leaves.
	fill := func(file string, left int64) {
		t.Helper()
		disk, err := statfs(root)
		if err != nil {
			t.Fatal(err)
		}
		trigger(ns, hog, fmt.Sprintf("dd if=/dev/zero of=/%s bs=1M count=%d", file, int64(disk.Bavail)*disk.Bsize>>20-left))
	}
	fill("much", threshold-spare)
	kit.Eventually(t, "the unused image to go", func() error {
		list, err := bed.Containerd.Images().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		if err == nil && strings.Contains(fmt.Sprint(list.GetImages()), unused) {
			err = errors.New("it is still there")
		}
		return err
	})
	condition(t, bed, calm, corev1.NodeDiskPressure, corev1.ConditionTrue)
	unharmed(t, ns, "hog", "files", "modest", "volume")
	crossed := crossing(t, func() (bool, error) {
		disk, err := statfs(root)
		return int64(disk.Bavail)*disk.Bsize < threshold<<20, err
	})
	fill("more", threshold-3*spare)
	rest := low(t, ns, "hog", "ephemeral-storage", fmt.Sprintf("%dMi", threshold), fmt.Sprintf("%dMi", threshold))
	if !strings.HasPrefix(rest, "Container app was using ") || !strings.HasSuffix(rest, ", request is 0, has larger consumption of ephemeral-storage. ") {
		t.Errorf("the message ends with %q", rest)
	}
	if got := evictions(t, bed, crossed()); got != "hog" {
		t.Errorf("evicted: %s", got)
	}
	unharmed(t, ns, "files", "modest", "volume")
	crossed = crossing(t, func() (bool, error) {
		disk, err := statfs(root)
		return disk.Ffree < inodes, err
	})
	trigger(ns, many, "mkdir /many; "+files("/many", 15_000))
	if rest := low(t, ns, "files", "inodes", "8k", "8k"); rest != "" {
		t.Errorf("the message ends with %q; the kubelet names no containers", rest)
	}
	if got := evictions(t, bed, crossed()); got != "hog files" {
		t.Errorf("evicted: %s", got)
	}
	unharmed(t, ns, "modest", "volume")
}

// layered is a pod that uses its writable layer.
func layered(name, does string) string {
	return pod(name, `
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, '`+does+forever+`']}
`)
}

// imagesOn starts containerd anew with its root directory on a filesystem of its own of that size in MiB, and returns that.
func imagesOn(t *testing.T, b *kit.Bed, mib int) string {
	t.Helper()
	b.Containerd.Stop()
	root := b.Bed.Path("containerd", "root")
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	loopback(t, root, mib)
	if err := b.Containerd.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	pause, err := images.Pause(b.Tools.Path("pause"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Containerd.Import(t.Context(), pause, b.Busybox); err != nil {
		t.Fatal(err)
	}
	return root
}

// load imports an image that takes up so many MiB, twice: packed and unpacked.
func load(t *testing.T, b *kit.Bed, ref string, mib int64) {
	t.Helper()
	img, err := images.Padded(b.Busybox, ref, mib<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Containerd.Import(t.Context(), img); err != nil {
		t.Fatal(err)
	}
}
