package orphans

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon/mounttest"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	os.Exit(m.Run())
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestOrphans(t *testing.T) {
	is := func(uids ...types.UID) map[types.UID]bool {
		m := map[types.UID]bool{}
		for _, u := range uids {
			m[u] = true
		}
		return m
	}
	got := orphansOf([]types.UID{"z", "wanted", "a", "observed", "a"}, is("wanted"), is("observed"))
	if !reflect.DeepEqual(got, []types.UID{"a", "z"}) {
		t.Errorf("got %v", got)
	}
}

func TestPodDirs(t *testing.T) {
	root := t.TempDir()
	if uids, err := podDirs(root); err != nil || uids != nil {
		t.Errorf("without a directory: %v, %v", uids, err)
	}
	write(t, root+"/pods/uid-1/etc-hosts")
	write(t, root+"/pods/stray-file")
	if uids, err := podDirs(root); err != nil || !reflect.DeepEqual(uids, []types.UID{"uid-1"}) {
		t.Errorf("got %v, %v", uids, err)
	}
}

func TestRemovePodDir(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/precious")
	write(t, root+"/pods/u/volumes/kubernetes.io~empty-dir/v/a/b/c")
	write(t, root+"/pods/other/etc-hosts")
	if err := os.Symlink(outside, root+"/pods/u/volumes/link"); err != nil {
		t.Fatal(err)
	}
	if err := RemovePodDir(root, "u"); err != nil {
		t.Fatal(err)
	}
	if exists(root+"/pods/u") || !exists(outside+"/precious") || !exists(root+"/pods/other/etc-hosts") {
		t.Error("too little or too much was removed")
	}
	if err := RemovePodDir(root, "u"); err != nil {
		t.Errorf("the second removal: %v", err)
	}
	if err := RemovePodDir(filepath.Join(root, "nowhere"), "u"); err != nil {
		t.Errorf("without a directory of pods: %v", err)
	}
	for _, uid := range []types.UID{"", ".", "..", "../..", "a/b"} {
		if err := RemovePodDir(root, uid); err == nil {
			t.Errorf("the UID %q was taken for a directory", uid)
		}
	}
}

func TestMountsAreRefused(t *testing.T) {
	for name, file := range map[string]bool{"directory": false, "file": true} {
		t.Run(name, func(t *testing.T) {
			root, outside := t.TempDir(), t.TempDir()
			pod := root + "/pods/u"
			write(t, outside+"/precious")
			write(t, pod+"/a-first/file")
			write(t, pod+"/volumes/v/below/file")
			// A bind mount within one filesystem: its device number tells nothing.
			source, target := outside, pod+"/volumes/v/below"
			if file {
				source, target = outside+"/precious", pod+"/volumes/v/below/file"
			}
			if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			unmount := func() { unix.Unmount(target, unix.MNT_DETACH) }
			t.Cleanup(unmount)
			err := RemovePodDir(root, "u")
			if err == nil || !strings.Contains(err.Error(), target+" is still mounted") {
				t.Errorf("got %v", err)
			}
			if !exists(outside+"/precious") || !exists(pod+"/a-first/file") {
				t.Error("something was removed although a mount was left")
			}
			unmount()
			if err := RemovePodDir(root, "u"); err != nil || exists(pod) || !exists(outside+"/precious") {
				t.Errorf("after the unmount: %v", err)
			}
		})
	}
}

// By its record the volume daemon has a driver take a volume back, also after a reboot, when nothing of it is mounted
// and the driver isn't there yet.
func TestVolumesOfDriversAreRefused(t *testing.T) {
	root := t.TempDir()
	record := root + "/pods/u/volumes/kubernetes.io~csi/pv/vol_data.json"
	write(t, record)
	write(t, root+"/pods/u/etc-hosts")
	if err := RemovePodDir(root, "u"); err == nil || !strings.Contains(err.Error(), record) || !exists(record) {
		t.Errorf("got %v; the record is there: %v", err, exists(record))
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if err := RemovePodDir(root, "u"); err != nil || exists(root+"/pods/u") {
		t.Errorf("after the driver has taken it back: %v", err)
	}
}

func TestLogs(t *testing.T) {
	logs := t.TempDir()
	dir := LogDir(logs, "default", "web", "u-1")
	if dir != logs+"/default_web_u-1" {
		t.Errorf("the directory is %s", dir)
	}
	write(t, dir+"/app/0.log")
	if err := RemoveLogDir(logs, "default", "web", "u-1"); err != nil || exists(dir) {
		t.Errorf("removal: %v", err)
	}
	if err := RemoveLogDir(logs, "..", "/", "x"); err == nil {
		t.Error("a path was taken for a name")
	}
	if got := LogLink("/var/log/containers", "web", "default", "app",
		"0123"); got != "/var/log/containers/web_default_app-0123.log" {
		t.Errorf("the link is %s", got)
	}
	long := filepath.Base(LogLink("/l", strings.Repeat("p", 253), strings.Repeat("n", 63), "c", "id"))
	if len(long) != 255 || !strings.HasSuffix(long, ".log") {
		t.Errorf("the long link is %d bytes: %s", len(long), long)
	}
}
