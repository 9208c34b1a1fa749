package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/mounttest"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func limit(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeoutCause(t.Context(), d, errors.New("the test's limit"))
}

// bed has a volume of a pod, and programs of its own instead of the node's.
type bed struct {
	volumes *Volumes
	dir     string
	share   Share
	bin     string
	calls   string
}

// newBed has a mount that mounts a tmpfs, an umount that unmounts, and a stat that answers. All note their arguments.
func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{
		volumes: New(), bin: filepath.Join(dir, "bin"), calls: filepath.Join(dir, "calls"),
		dir:   filepath.Join(dir, "pods", "u1", "volumes", dirName, "data"),
		share: Share{Source: &corev1.NFSVolumeSource{Server: "nas", Path: "/data"}},
	}
	b.volumes.forceFor = time.Minute
	must(t, os.Mkdir(b.bin, 0o755))
	t.Setenv("PATH", b.bin+":"+os.Getenv("PATH"))
	b.program(t, "mount", `for dir; do :; done; exec `+find(t, "mount")+` -t tmpfs tmpfs "$dir"`)
	b.program(t, "umount", "exec "+find(t, "umount")+` "$@"`)
	b.program(t, "stat", "")
	t.Cleanup(func() { _ = unix.Unmount(b.dir, unix.MNT_DETACH) })
	return b
}

// find is the node's own program.
func find(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	t.Skip("this machine has no " + name)
	return ""
}

// program makes a program that notes its arguments and goes on as the shell script says.
func (b *bed) program(t *testing.T, name, script string) {
	t.Helper()
	text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\n%s\n", name, b.calls, script)
	must(t, os.WriteFile(filepath.Join(b.bin, name), []byte(text), 0o755))
}

// real has the node's own programs used.
func (b *bed) real(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.Remove(filepath.Join(b.bin, name)))
	}
}

// called are the calls since the last time, with DIR for the pod's directory.
func (b *bed) called(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(b.calls)
	if !errors.Is(err, os.ErrNotExist) {
		must(t, err)
	}
	_ = os.Remove(b.calls)
	return strings.TrimSpace(strings.ReplaceAll(string(data), b.dir, "DIR"))
}

func (b *bed) mount(t *testing.T) (plugin.Result, error) {
	t.Helper()
	return b.volumes.MountAt(t.Context(), b.dir, b.share, false)
}

func (b *bed) expect(t *testing.T, want string) {
	t.Helper()
	if got := b.called(t); got != want {
		t.Errorf("called:\n%s\nwant:\n%s", got, want)
	}
}

func TestMountAndUnmount(t *testing.T) {
	for name, c := range map[string]struct {
		share Share
		want  string
	}{
		"plain": {Share{Source: &corev1.NFSVolumeSource{Server: "nas", Path: "/data"}}, "mount -t nfs nas:/data DIR"},
		"options": {
			Share{Source: &corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/"}, Options: []string{"hard", "nfsvers=4.1"}},
			"mount -t nfs -o hard,nfsvers=4.1 10.0.0.1:/ DIR",
		},
		"read-only": {
			Share{Source: &corev1.NFSVolumeSource{Server: "nas", Path: "/data"}, Options: []string{"soft"}, ReadOnly: true},
			"mount -t nfs -o ro,soft nas:/data DIR",
		},
		"IPv6": {
			Share{Source: &corev1.NFSVolumeSource{Server: "fd00::1", Path: "/data"}},
			"mount -t nfs [fd00::1]:/data DIR",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.share = c.share
			result, err := b.mount(t)
			must(t, err)
			if result.HostPath != b.dir || result.ReadOnly != c.share.ReadOnly || result.SELinuxRelabel {
				t.Errorf("the volume is %+v", result)
			}
			b.expect(t, c.want)
			// As another process finds it.
			b.volumes = New()
			_, err = b.mount(t)
			must(t, err)
			b.expect(t, "")
			must(t, b.volumes.Unmount(t.Context(), b.dir))
			b.expect(t, "umount DIR")
			must(t, b.volumes.Unmount(t.Context(), b.dir))
			b.expect(t, "")
			if _, err := os.Lstat(b.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the mount point is left: %v", err)
			}
		})
	}
}

func TestMountFails(t *testing.T) {
	b := newBed(t)
	b.program(t, "mount", "echo mount.nfs: access denied by server while mounting nas:/data >&2; exit 32")
	_, err := b.mount(t)
	want := "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs nas:/data " + b.dir +
		"\nOutput: mount.nfs: access denied by server while mounting nas:/data"
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
	if _, err := os.Lstat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount point is left: %v", err)
	}
	b.program(t, "mount", "echo 'bad option; you might need a /sbin/mount.<type> helper program.'; exit 32")
	if _, err := b.mount(t); !errors.Is(err, errNoHelper) {
		t.Errorf("error %v, want which package to install", err)
	}
}

// A server isn't an option of mount, which root runs.
func TestServerThatIsAnOption(t *testing.T) {
	b := newBed(t)
	b.share = Share{Source: &corev1.NFSVolumeSource{Server: "-T/some/dir", Path: "/f"}}
	const want = `"-T/some/dir" can't be the name of an NFS server`
	if _, err := b.mount(t); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	b.expect(t, "")
}

// A mount that gets no answer ends with its pod.
func TestMountIsCancelled(t *testing.T) {
	b := newBed(t)
	b.program(t, "mount", "sleep 1000 & wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(300*time.Millisecond, func() { cancel(plugin.ErrTerminated) })
	begin := time.Now()
	_, err := b.volumes.MountAt(ctx, b.dir, b.share, false)
	if !errors.Is(err, plugin.ErrTerminated) || time.Since(begin) > time.Minute {
		t.Errorf("error %v after %s, want that it was cancelled", err, time.Since(begin))
	}
	if processes := left(t, b.dir); len(processes) > 0 {
		t.Errorf("processes are left: %q", processes)
	}
	must(t, b.volumes.Unmount(t.Context(), b.dir))
}

// An unmount that takes too long is forced, and no other.
func TestUnmountIsForced(t *testing.T) {
	b := newBed(t)
	b.volumes.forceAfter = 5 * time.Second // in which the first umount notes its call
	_, err := b.mount(t)
	must(t, err)
	b.called(t)
	b.program(t, "umount", `[ "$1" = -f ] || exec sleep 1000; shift; exec `+find(t, "umount")+` "$@"`)
	must(t, b.volumes.Unmount(t.Context(), b.dir))
	b.expect(t, "umount DIR\numount -f DIR")
}

// To force an unmount would fail the requests of other pods, if the server answers.
func TestBusyMountIsNotForced(t *testing.T) {
	b := newBed(t)
	_, err := b.mount(t)
	must(t, err)
	file, err := os.Create(filepath.Join(b.dir, "open"))
	must(t, err)
	b.called(t)
	if err := b.volumes.Unmount(t.Context(), b.dir); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error %v, want that it is busy", err)
	}
	b.expect(t, "umount DIR\nstat -f DIR")
	must(t, file.Close())
	must(t, b.volumes.Unmount(t.Context(), b.dir))
}

// What lies in a directory on which nothing is mounted is somebody's data.
func TestDataIsNotRemoved(t *testing.T) {
	b := newBed(t)
	must(t, os.MkdirAll(filepath.Join(b.dir, "precious"), 0o755))
	if err := b.volumes.Unmount(t.Context(), b.dir); err == nil || isMounted(t, b.dir) {
		t.Errorf("error %v", err)
	}
	must(t, os.Remove(filepath.Join(b.dir, "precious")))
	must(t, b.volumes.Unmount(t.Context(), b.dir))
}
