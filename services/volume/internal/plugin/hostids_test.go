package plugin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/userns"
	"kubelot.dev/services/volume/internal/atomicwriter"
	"kubelot.dev/services/volume/internal/mounts"
)

// old is the release of a kernel that can't map the IDs of a tmpfs.
const old = "6.1.0-18-amd64"

var podIDs = userns.Range{First: 131072, Length: 65536}

// inUserNamespace makes the request one of a pod with a user namespace, which podsync has given its IDs.
func inUserNamespace(t *testing.T, r Request) Request {
	t.Helper()
	r.Pod.Spec.HostUsers = ptr(false)
	must(t, podIDs.Write(filepath.Join(r.Dir, "../../..")))
	return r
}

// owned checks the owner and group of all that is in a volume, and of itself.
func owned(t *testing.T, dir string, uid, gid uint32) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != uid || stat.Gid != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
		}
		return nil
	}))
}

func secretOf(kernel string, data map[string][]byte) Objects {
	return Objects{Secrets: store[corev1.Secret]{"shop/s": {Data: data}}, Kernel: kernel}
}

var secretSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}

// A kernel that can't map the IDs of a tmpfs gets files that belong to the pod's own IDs, and the runtime no mapping.
func TestFilesInMemoryOfAnOldKernel(t *testing.T) {
	data := map[string][]byte{"key": []byte("v")}
	kind, r := request(t, All(secretOf(old, data)), secretSource)
	r = inUserNamespace(t, r)
	if result := mount(t, kind, r); !result.HostIDs || !isMount(t, r.Dir) {
		t.Errorf("result %+v", result)
	}
	owned(t, r.Dir, 131072, 131072)
	before, err := os.Readlink(filepath.Join(r.Dir, "..data"))
	must(t, err)
	mount(t, kind, r)
	if after, err := os.Readlink(filepath.Join(r.Dir, "..data")); err != nil || after != before {
		t.Errorf("the same files were written again: %s, %v", after, err)
	}
	data["key"] = []byte("w")
	mount(t, kind, r)
	owned(t, r.Dir, 131072, 131072)
	if got, err := os.ReadFile(filepath.Join(r.Dir, "key")); err != nil || string(got) != "w" {
		t.Errorf("%q, %v", got, err)
	}

	// Its source is away: what is there serves, as it is.
	gone, _ := request(t, All(Objects{Secrets: store[corev1.Secret]{}, Kernel: old}), secretSource)
	if result, err := gone.Plugin.Mount(t.Context(), r); err == nil || !result.HostIDs {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestFilesInMemoryOfAnOldKernelWithAGroup(t *testing.T) {
	kind, r := request(t, All(secretOf(old, map[string][]byte{"key": []byte("v")})), secretSource)
	r = inUserNamespace(t, r)
	r.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000))}
	mount(t, kind, r)
	owned(t, r.Dir, 131072, 133072)

	r.Pod.Spec.SecurityContext.FSGroup = ptr(int64(70000))
	if _, err := kind.Plugin.Mount(t.Context(), r); err == nil || !strings.Contains(err.Error(), "no ID 70000") {
		t.Errorf("a group of another pod's IDs: %v", err)
	}
}

// Where the kernel can, or the pod is in the host's user namespace, files are root's.
func TestFilesThatTheRuntimeMaps(t *testing.T) {
	for name, c := range map[string]struct {
		kernel    string
		hostUsers *bool
	}{"a new kernel": {"6.3.0", ptr(false)}, "the host's users": {old, nil}} {
		t.Run(name, func(t *testing.T) {
			kind, r := request(t, All(secretOf(c.kernel, map[string][]byte{"key": []byte("v")})), secretSource)
			r = inUserNamespace(t, r)
			r.Pod.Spec.HostUsers = c.hostUsers
			if result := mount(t, kind, r); result.HostIDs {
				t.Errorf("result %+v", result)
			}
			owned(t, r.Dir, 0, 0)
		})
	}
}

// What another agent has mounted for a mapping stays like that: containers may run with it.
func TestFilesThatWereMountedForAMapping(t *testing.T) {
	objects := secretOf("6.3.0", map[string][]byte{"key": []byte("v")})
	kind, r := request(t, All(objects), secretSource)
	r = inUserNamespace(t, r)
	mount(t, kind, r)
	objects.Kernel = old
	kind, _ = request(t, All(objects), secretSource)
	if result := mount(t, kind, r); result.HostIDs {
		t.Errorf("result %+v", result)
	}
	owned(t, r.Dir, 0, 0)
}

func TestEmptyDirInMemoryOfAnOldKernel(t *testing.T) {
	kind, r := request(t, All(Objects{Kernel: old}), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory,
	}})
	r = inUserNamespace(t, r)
	for range 2 {
		if result := mount(t, kind, r); !result.HostIDs || !isMount(t, r.Dir) {
			t.Errorf("result %+v", result)
		}
		owned(t, r.Dir, 131072, 131072)
	}
	// The pod may give it to another of its users.
	must(t, os.Chown(r.Dir, 131072+1000, 131072))
	if result := mount(t, kind, r); !result.HostIDs {
		t.Errorf("result %+v", result)
	}
	must(t, kind.Plugin.Unmount(context.Background(), r.Dir))
}

// A disk's filesystem is mapped, whatever the kernel.
func TestEmptyDirOnDiskOfAnOldKernel(t *testing.T) {
	kind, r := request(t, All(Objects{Kernel: old}), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	if result := mount(t, kind, inUserNamespace(t, r)); result.HostIDs {
		t.Errorf("result %+v", result)
	}
	owned(t, r.Dir, 0, 0)
}

// Until podsync has given the pod its IDs, the volume is on its way; nothing is mounted that would have to go again.
func TestVolumeInMemoryWaitsForItsIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind, r := request(t, All(secretOf(old, map[string][]byte{"key": []byte("v")})), secretSource)
		r.Pod.Spec.HostUsers = ptr(false)
		_, err := kind.Plugin.Mount(t.Context(), r)
		var failure *Failure
		const want = "has not given the pod its user IDs"
		if !errors.As(err, &failure) || !failure.OnItsWay || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
		if mounted, err := mounts.Mounted(r.Dir); mounted || err != nil {
			t.Errorf("mounted %v, %v", mounted, err)
		}
	})
}

// A token belongs to the user that all containers run as.
func TestFileOfAUserOfAnOldKernel(t *testing.T) {
	user := int64(1000)
	v := fileVolume{memory: true, kernel: old, collect: func(context.Context, Request) (collected, error) {
		return collected{files: atomicwriter.Payload{"token": {Data: []byte("t"), Mode: 0o600, UID: &user}}}, nil
	}}
	kind, r := request(t, All(Objects{}), secretSource)
	kind.Plugin = v
	r = inUserNamespace(t, r)
	mount(t, kind, r)
	info, err := os.Stat(filepath.Join(r.Dir, "token"))
	must(t, err)
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 132072 || stat.Gid != 131072 || info.Mode() != 0o600 {
		t.Errorf("it belongs to %d:%d, mode %v", stat.Uid, stat.Gid, info.Mode())
	}
	user = 70000
	if _, err := v.Mount(t.Context(), r); err == nil || !strings.Contains(err.Error(), "no ID 70000") {
		t.Errorf("a user of another pod's IDs: %v", err)
	}
}
