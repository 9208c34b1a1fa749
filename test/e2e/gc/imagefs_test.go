package gc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/harness/criproxy"
	"kubelot.dev/test/harness/images"
)

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
// nothing: where writable layers are with the images, those of imagefs are theirs. The inodes get short as soon as the figures for the
// bytes were read, which say nothing of them, and the runtime's figures come at once or late.
func TestImageDiskPressure(t *testing.T) {
	for name, delay := range map[string]time.Duration{"figures at once": 0, "figures late": 2 * time.Second} {
		t.Run(name, func(t *testing.T) { t.Parallel(); imageDiskPressure(t, delay) })
	}
}

func imageDiskPressure(t *testing.T, delay time.Duration) {
	const (
		threshold, spare, padded = 250, 40, 60 // MiB
		inodes                   = 8000
		unused                   = "docker.io/library/unused:1"
	)
	config := fmt.Sprintf("evictionHard: {imagefs.available: %dMi, imagefs.inodesFree: 8k, containerfs.available: 100Ti}\n", threshold)
	var root string
	var proxy *criproxy.Proxy
	bed := startWith(t, config+"imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 1ms\n"+transition, func(b *kit.Bed) []string {
		root = imagesOn(t, b, 640)
		load(t, b, unused, padded)
		socket := b.Bed.Path("proxy.sock")
		proxy = proxied(t, b, socket)
		return []string{"--container-runtime-endpoint=unix://" + socket}
	})
	ns := bed.Namespace(t)
	ns.Apply(layered("hog", "") + "---\n" + layered("files", "") + "---\n" +
		layered("modest", "dd if=/dev/zero of=/some bs=1M count=30; ") + "---\n" + volumed("volume", "fallocate -l 1G /data/much; "))
	hog, many := ns.Running("hog"), ns.Running("files")
	ns.Running("modest")
	ns.Running("volume")
	kit.Eventually(t, "gc to know the images", func() error {
		_, err := os.Stat(filepath.Join(bed.Bed.Path("run"), "gc", "images.json"))
		return err
	})
	calm := bed.KubeNode(t)
	available := func() (mib int64, err error) {
		disk, err := statfs(root)
		return int64(disk.Bavail) * disk.Bsize >> 20, err
	}
	// filling is a command that leaves so much of the filesystem.
	filling := func(file string, left int64) string {
		t.Helper()
		mib, err := available()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("dd if=/dev/zero of=/%s bs=1M count=%d", file, mib-left)
	}
	ns.Exec(hog, "app", filling("much", threshold-spare))
	kit.Eventually(t, "the unused image and its files to go", func() error {
		list, err := bed.Containerd.Images().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		mib, statErr := available()
		if err = errors.Join(err, statErr); err == nil && (strings.Contains(fmt.Sprint(list.GetImages()), unused) || mib <= threshold) {
			err = fmt.Errorf("%d MiB are available, images %v", mib, list.GetImages())
		}
		return err
	})
	condition(t, bed, calm, corev1.NodeDiskPressure, corev1.ConditionTrue)
	unharmed(t, ns, "hog", "files", "modest", "volume")
	crossed := crossing(t, func() (bool, error) {
		mib, err := available()
		return mib < threshold, err
	})
	ofInodes := crossing(t, func() (bool, error) {
		disk, err := statfs(root)
		return disk.Ffree < inodes, err
	})
	proxy.Spoil("ListContainerStats", criproxy.Fault{Delay: delay})
	trigger(ns, hog, filling("more", threshold-3*spare))
	decided := crossing(t, func() (bool, error) { return len(evictions(t, bed)) > 0, nil })
	decided() // right after the figures were read
	trigger(ns, many, "mkdir /many; "+files("/many", 15_000))
	rest := low(t, ns, "hog", "ephemeral-storage", fmt.Sprintf("%dMi", threshold), fmt.Sprintf("%dMi", threshold))
	var used string
	if _, err := fmt.Sscanf(rest, "Container app was using %s request is 0, has larger consumption of ephemeral-storage. ", &used); err != nil {
		t.Errorf("the message ends with %q: %v", rest, err)
	} else if q := resource.MustParse(strings.TrimSuffix(used, ",")); q.Value() < 200<<20 {
		t.Errorf("the message ends with %q; by then it had written more", rest)
	}
	took(t, bed, "hog", crossed())
	if rest := low(t, ns, "files", "inodes", "8k", "8k"); rest != "" {
		t.Errorf("the message ends with %q; the kubelet names no containers", rest)
	}
	took(t, bed, "files", ofInodes())
	unharmed(t, ns, "modest", "volume")
	if got := evictions(t, bed); !slices.Equal(got, []string{"hog", "files"}) {
		t.Errorf("evicted: %v", got)
	}
}

// proxied puts a proxy before the runtime, at the socket.
func proxied(t *testing.T, b *kit.Bed, socket string) *criproxy.Proxy {
	t.Helper()
	proxy, err := criproxy.Start(socket, b.Containerd.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// volumed is a pod that uses its volume, layered one that uses its writable layer, and both go on running.
func volumed(name, does string) string {
	return pod(name, `
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, '`+does+forever+`'], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`)
}

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
