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
	"kubelot.dev/test/testbed/criproxy"
	"kubelot.dev/test/testbed/images"
)

// files is a command that makes so many empty files.
func files(dir string, n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do : > %s/$i; i=$((i+1)); done", n, dir)
}

func statfs(path string) (disk syscall.Statfs_t, err error) {
	err = syscall.Statfs(path, &disk)
	return disk, err
}

// The filesystem of images and writable layers gets short: unused images go first, and nobody is evicted if that is
// enough. Else the pod is that has written most there, whatever others have in volumes elsewhere; of inodes too. A
// threshold of containerfs counts for nothing: where writable layers are with the images, those of imagefs are theirs.
// The inodes get short right after the figures for the bytes were read, which come at once or late: by them others than
// files had most inodes. What hog had may be freed long after it is gone.
func TestImageDiskPressure(t *testing.T) {
	t.Parallel()
	t.Run("figures at once", func(t *testing.T) {
		t.Parallel()
		d := newImageDisk(t)
		bytes, inodes := d.bytesGetShort(), d.inodesAreShort()
		kit.Eventually(t, "an eviction, which comes right after the figures", func() error {
			if len(evictions(t, d.bed)) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		d.makeFiles()
		d.hogGoes(bytes)
		d.filesGoes(inodes)
		d.evicted("hog", "files")
	})
	t.Run("space late", func(t *testing.T) {
		t.Parallel()
		d := newImageDisk(t)
		bytes := d.bytesGetShort()
		free := d.holdFiles("much", "more")
		d.hogGoes(bytes)
		// As containerd may take on a busy machine: longer than gc waits for the space of a pod that it has chosen without
		// fresh figures, and less than it waits for this one's.
		time.Sleep(30 * time.Second)
		d.evicted("hog")
		free()
		condition(t, d.bed, d.bed.KubeNode(t), corev1.NodeDiskPressure, corev1.ConditionFalse)
		d.evicted("hog")
	})
	t.Run("figures late", func(t *testing.T) {
		t.Parallel()
		d := newImageDisk(t)
		d.bytesPass(6 * time.Second)
		inodes := d.inodesAreShort()
		d.makeFiles()
		d.filesGoes(inodes)
		d.hogGoes(d.bytesGetShort())
		d.evicted("files", "hog")
	})
}

const (
	imageThreshold, imageSpare = 250, 40 // MiB
	imageInodes                = 8000
)

// imageDisk is a bed whose images and writable layers are on a small filesystem. hog has most of the bytes, files is to
// make most inodes.
type imageDisk struct {
	t          *testing.T
	bed        *kit.Bed
	ns         *kit.Namespace
	proxy      *criproxy.Proxy
	root       string
	hog, files *corev1.Pod
}

func newImageDisk(t *testing.T) *imageDisk {
	t.Helper()
	const (
		padded = 60 // MiB
		unused = "docker.io/library/unused:1"
	)
	config := fmt.Sprintf(
		"evictionHard: {imagefs.available: %dMi, imagefs.inodesFree: 8k, containerfs.available: 100Ti}\n", imageThreshold)
	config += "imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 1ms\n" + transition
	d := &imageDisk{t: t}
	d.bed = startWith(t, config, func(b *kit.Bed) []string {
		d.root = imagesOn(t, b, 640)
		load(t, b, unused, padded)
		socket := b.Bed.Path("proxy.sock")
		d.proxy = proxied(t, b, socket)
		return []string{"--container-runtime-endpoint=unix://" + socket}
	})
	d.ns = d.bed.Namespace(t)
	d.ns.Apply(layered("hog", "") + "---\n" + layered("files", "") + "---\n" +
		layered("modest", "dd if=/dev/zero of=/some bs=1M count=30; ") + "---\n" + volumed("volume",
		"fallocate -l 1G /data/much; "))
	d.hog, d.files = d.ns.Running("hog"), d.ns.Running("files")
	d.ns.Running("modest")
	d.ns.Running("volume")
	kit.Eventually(t, "gc to know the images", func() error {
		_, err := os.Stat(filepath.Join(d.bed.Bed.Path("run"), "gc", "images.json"))
		return err
	})
	calm := d.bed.KubeNode(t)
	trigger(d.ns, d.hog, d.filling("much", imageThreshold-imageSpare))
	kit.Eventually(t, "the unused image and its files to go", func() error {
		list, err := d.bed.CRI.Images().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		mib, statErr := d.available()
		err = errors.Join(err, statErr)
		if err == nil && (strings.Contains(fmt.Sprint(list.GetImages()), unused) || mib <= imageThreshold) {
			err = fmt.Errorf("%d MiB are available, images %v", mib, list.GetImages())
		}
		return err
	})
	condition(t, d.bed, calm, corev1.NodeDiskPressure, corev1.ConditionTrue)
	unharmed(t, d.ns, "hog", "files", "modest", "volume")
	return d
}

func (d *imageDisk) available() (mib int64, err error) {
	disk, err := statfs(d.root)
	return int64(disk.Bavail) * disk.Bsize >> 20, err
}

// filling is a command that leaves so much of the filesystem.
func (d *imageDisk) filling(file string, left int64) string {
	d.t.Helper()
	mib, err := d.available()
	if err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprintf("dd if=/dev/zero of=/%s bs=1M count=%d", file, mib-left)
}

func (d *imageDisk) bytesAreShort() (crossed func() time.Time) {
	return crossing(d.t, func() (bool, error) {
		mib, err := d.available()
		return mib < imageThreshold, err
	})
}

func (d *imageDisk) inodesAreShort() (crossed func() time.Time) {
	return crossing(d.t, func() (bool, error) {
		disk, err := statfs(d.root)
		return disk.Ffree < imageInodes, err
	})
}

// bytesGetShort has hog write more than there is.
func (d *imageDisk) bytesGetShort() (crossed func() time.Time) {
	d.t.Helper()
	crossed = d.bytesAreShort()
	trigger(d.ns, d.hog, d.filling("more", imageThreshold-3*imageSpare))
	return crossed
}

// bytesPass has bytes short until figures are asked for, and returns right after they were read: so late that nobody
// needs them any more.
func (d *imageDisk) bytesPass(late time.Duration) {
	d.t.Helper()
	d.proxy.Spoil("ListContainerStats", criproxy.Fault{Delay: late})
	ballast := filepath.Join(d.root, "ballast")
	var size int64
	for begin := time.Now(); d.proxy.Spoilt("ListContainerStats") == 0; time.Sleep(5 * time.Millisecond) {
		mib, err := d.available()
		if err != nil {
			d.t.Fatal(err)
		}
		// Again and again: the runtime takes its time to free what the removed image had.
		if mib > imageThreshold-imageSpare {
			size += mib - (imageThreshold - imageSpare)
			command(d.t, "fallocate", "-l", fmt.Sprintf("%dM", size), ballast)
		}
		if time.Since(begin) > kit.Patience {
			d.t.Fatalf("nobody has asked for figures, though %d MiB are available", mib)
		}
	}
	moment := time.Now()
	if err := os.Remove(ballast); err != nil {
		d.t.Fatal(err)
	}
	time.Sleep(time.Until(moment.Add(late + 50*time.Millisecond)))
	d.proxy.Heal()
}

// holdFiles keeps the space of files in a writable layer from being freed, by having them open, until free is called.
func (d *imageDisk) holdFiles(names ...string) (free func()) {
	d.t.Helper()
	var held []*os.File
	free = func() {
		for _, f := range held {
			_ = f.Close()
		}
	}
	d.t.Cleanup(free)
	for _, name := range names {
		kit.Eventually(d.t, "the file "+name, func() error {
			found, err := filepath.Glob(filepath.Join(d.root, "*", "snapshots", "*", "fs", name))
			if err != nil || len(found) != 1 {
				return fmt.Errorf("%v, %w", found, err)
			}
			f, err := os.Open(found[0])
			if err == nil {
				held = append(held, f)
			}
			return err
		})
	}
	return free
}

// makeFiles has files make more than there may be.
func (d *imageDisk) makeFiles() { trigger(d.ns, d.files, "mkdir /many; "+files("/many", 15_000)) }

func (d *imageDisk) hogGoes(crossed func() time.Time) {
	d.t.Helper()
	limit := fmt.Sprintf("%dMi", imageThreshold)
	rest := low(d.t, d.ns, "hog", "ephemeral-storage", limit, limit)
	var used string
	const larger = "Container app was using %s request is 0, has larger consumption of ephemeral-storage. "
	if _, err := fmt.Sscanf(rest, larger, &used); err != nil {
		d.t.Errorf("the message ends with %q: %v", rest, err)
	} else if q := resource.MustParse(strings.TrimSuffix(used, ",")); q.Value() < 200<<20 {
		d.t.Errorf("the message ends with %q; by then it had written more", rest)
	}
	took(d.t, d.bed, "hog", crossed())
}

func (d *imageDisk) filesGoes(crossed func() time.Time) {
	d.t.Helper()
	if rest := low(d.t, d.ns, "files", "inodes", "8k", "8k"); rest != "" && !strings.HasPrefix(rest, late) {
		d.t.Errorf("the message ends with %q; the kubelet names no containers", rest)
	}
	took(d.t, d.bed, "files", crossed())
}

func (d *imageDisk) evicted(want ...string) {
	d.t.Helper()
	unharmed(d.t, d.ns, "modest", "volume")
	if got := evictions(d.t, d.bed); !slices.Equal(got, want) {
		d.t.Errorf("evicted: %v, want %v", got, want)
	}
}

// proxied puts a proxy before the runtime, at the socket.
func proxied(t *testing.T, b *kit.Bed, socket string) *criproxy.Proxy {
	t.Helper()
	proxy, err := criproxy.Start(socket, b.CRI.Socket)
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

// imagesOn restarts containerd with its root directory on a filesystem of its own of that size in MiB, and returns
// that.
func imagesOn(t *testing.T, b *kit.Bed, mib int) string {
	t.Helper()
	b.CRI.Stop()
	root := b.Bed.Path("containerd", "root")
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	kit.Loopback(t, root, mib)
	if err := b.CRI.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	pause, err := images.Pause(b.Tools.Path("pause"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CRI.Import(t.Context(), pause, b.Busybox); err != nil {
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
	if err := b.CRI.Import(t.Context(), img); err != nil {
		t.Fatal(err)
	}
}
