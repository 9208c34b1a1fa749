package down

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/daemon/mounttest"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	goleak.VerifyTestMain(m)
}

// fake keeps sandboxes and records what is done to them.
type fake struct {
	mu        sync.Mutex
	sandboxes []*runtimeapi.PodSandbox
	calls     []string
	stuck     string
}

func (f *fake) record(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *fake) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return f.sandboxes, nil
}

func (f *fake) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{
		{Id: "c1", PodSandboxId: "s1", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		{Id: "c2", PodSandboxId: "s1", State: runtimeapi.ContainerState_CONTAINER_EXITED},
		{Id: "c3", PodSandboxId: "s3", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}, nil
}

func (f *fake) StopContainer(_ context.Context, id string, grace time.Duration) error {
	f.record("stop " + id + " " + grace.String())
	return nil
}

func (f *fake) StopPodSandbox(_ context.Context, id string) error {
	f.record("stop " + id)
	if id == f.stuck {
		return errors.New("it hangs")
	}
	return nil
}

func (f *fake) RemovePodSandbox(_ context.Context, id string) error {
	f.record("remove " + id)
	return nil
}

func sandbox(id, uid string) *runtimeapi.PodSandbox {
	s := &runtimeapi.PodSandbox{Id: id, Labels: map[string]string{}}
	if uid != "" {
		s.Labels = map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "p-" + id,
			"io.kubernetes.pod.namespace": "ns",
		}
	}
	return s
}

func write(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// node is a node's directories with one pod's leftovers: a tmpfs with a bind mount in it, logs, a link.
func node(t *testing.T, f *fake) (Options, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	volume := filepath.Join(dir, "root", "pods", "u1", "volumes", "tmp")
	write(t, filepath.Join(volume, "file"))
	write(t, filepath.Join(dir, "precious", "file"))
	t.Cleanup(func() {
		for range 3 {
			_ = unix.Unmount(filepath.Join(volume, "sub"), unix.MNT_DETACH)
			_ = unix.Unmount(volume, unix.MNT_DETACH)
		}
	})
	if err := unix.Mount("tmpfs", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(volume, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(filepath.Join(dir, "precious"), filepath.Join(volume, "sub"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	log := write(t, filepath.Join(dir, "logs", "ns_p-s1_u1", "app", "0.log"))
	write(t, filepath.Join(dir, "logs", "ns_other_u9", "app", "0.log"))
	write(t, filepath.Join(dir, "bus", "store"))
	if err := os.MkdirAll(filepath.Join(dir, "links"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(log, filepath.Join(dir, "links", "p.log")); err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	return Options{
		Runtime: f, RootDir: filepath.Join(dir, "root"), PodLogsDir: filepath.Join(dir, "logs"),
		ContainerLogsDir: filepath.Join(dir, "links"),
		BusStore:         filepath.Join(dir, "bus"), Grace: 3 * time.Second, Out: out,
	}, out
}

func TestRemovesEverythingOfPodsAndNothingElse(t *testing.T) {
	f := &fake{sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1"), sandbox("s2", "u2"), sandbox("s3", "")}}
	o, out := node(t, f)
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	slices.Sort(f.calls)
	if want := []string{"remove s1", "remove s2", "stop c1 3s", "stop s1", "stop s2"}; !slices.Equal(f.calls, want) {
		t.Errorf("calls %q, want %q", f.calls, want)
	}
	dir := filepath.Dir(o.RootDir)
	for path, want := range map[string]bool{
		"root/pods/u1": true, "logs/ns_p-s1_u1": true, "links/p.log": true, "bus": true,
		"precious/file": false, "logs/ns_other_u9": false, "root/pods": false,
	} {
		if gone(filepath.Join(dir, path)) != want {
			t.Errorf("%s: gone %v, want %v", path, !want, want)
		}
	}
	if !strings.Contains(out.String(), "removed pod ns/p-s1\n") {
		t.Errorf("said: %s", out)
	}
	if err := Run(t.Context(), o); err != nil {
		t.Errorf("second run: %v", err)
	}
}

func TestAPodThatResistsKeepsItsFiles(t *testing.T) {
	f := &fake{sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1"), sandbox("s2", "u2")}, stuck: "s1"}
	o, _ := node(t, f)
	err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "pod ns/p-s1: it hangs") {
		t.Errorf("error %v", err)
	}
	if !slices.Contains(f.calls, "remove s2") || gone(filepath.Join(o.RootDir, "pods", "u1")) {
		t.Errorf("calls %q", f.calls)
	}
}

func TestNothingIsDeletedThroughAMount(t *testing.T) {
	o, _ := node(t, &fake{})
	err := removeTree(t.Context(), filepath.Join(o.RootDir, "pods", "u1"))
	if err == nil || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("error %v", err)
	}
	if gone(filepath.Join(filepath.Dir(o.RootDir), "precious", "file")) {
		t.Error("a file behind a mount was deleted")
	}
}

// The root directory's mount on itself goes unless something else is mounted below it. A disk
// of its own stays.
func TestTheRootDirectorysOwnMountGoes(t *testing.T) {
	dir := t.TempDir()
	root, disk := filepath.Join(dir, "root"), filepath.Join(dir, "disk")
	plugin := filepath.Join(root, "plugins", "disk")
	t.Cleanup(func() {
		for _, point := range []string{plugin, root, root, disk} {
			_ = unix.Unmount(point, unix.MNT_DETACH)
		}
	})
	write(t, filepath.Join(root, "precious"))
	errs := []error{
		os.MkdirAll(plugin, 0o755), os.Mkdir(disk, 0o755),
		unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""), unix.Mount("", root, "", unix.MS_SHARED, ""),
		unix.Mount("tmpfs", plugin, "tmpfs", 0, ""), unix.Mount("tmpfs", disk, "tmpfs", 0, ""),
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	mounted := func(point string) bool {
		t.Helper()
		on, err := mountinfo.Mounted(point)
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	run := func(root string) string {
		t.Helper()
		var out bytes.Buffer
		if err := Run(t.Context(), Options{Runtime: &fake{}, RootDir: root, PodLogsDir: dir, Out: &out}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if out := run(root); !mounted(root) || !mounted(plugin) || !strings.Contains(out, plugin) {
		t.Errorf("with a plugin's mount: root is mounted %v, plugin %v, said %q", mounted(root), mounted(plugin), out)
	}
	if err := unix.Unmount(plugin, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run(root)
		if mounted(root) || gone(filepath.Join(root, "precious")) {
			t.Errorf("root is mounted: %v; its files are gone: %v", mounted(root), gone(filepath.Join(root, "precious")))
		}
	}
	if run(disk); !mounted(disk) {
		t.Error("a disk for the root directory was unmounted")
	}
	run(filepath.Join(dir, "missing"))
}

// What the node has mounted below a volume is unmounted in the volume only.
func TestTheNodesOwnMountsStay(t *testing.T) {
	dir := t.TempDir()
	host, volume := filepath.Join(dir, "host"), filepath.Join(dir, "pods", "u1", "volume")
	inner := filepath.Join(host, "inner")
	t.Cleanup(func() { _ = unix.Unmount(host, unix.MNT_DETACH) })
	errs := []error{
		os.MkdirAll(host, 0o755), os.MkdirAll(volume, 0o755),
		unix.Mount("tmpfs", host, "tmpfs", 0, ""), unix.Mount("", host, "", unix.MS_SHARED, ""),
		unix.Mount(host, volume, "", unix.MS_BIND, ""),
		os.Mkdir(inner, 0o755), unix.Mount("tmpfs", inner, "tmpfs", 0, ""),
		os.WriteFile(filepath.Join(inner, "precious"), nil, 0o600),
		unmountBelow(filepath.Join(dir, "pods")),
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if points, err := mountsBelow(filepath.Join(dir, "pods")); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	if gone(filepath.Join(inner, "precious")) {
		t.Error("the node's own mount is gone")
	}
}

// The paths are podsync's, by either driver: the runtime says which one counts.
func TestCgroupPaths(t *testing.T) {
	for root, want := range map[string][]string{
		"":       {"/kubepods", "/kubepods.slice"},
		"/":      {"/kubepods", "/kubepods.slice"},
		"/a/b-c": {"/a/b-c/kubepods", "/a.slice/a-b_c.slice/a-b_c-kubepods.slice"},
		// A root is written as cgroupfs has it: the driver adds its suffix to any name.
		"/a.slice": {"/a.slice/kubepods", "/a.slice.slice/a.slice-kubepods.slice"},
	} {
		if got, err := CgroupPaths(root); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: paths %v, %v; want %v", root, got, err, want)
		}
	}
	for _, root := range []string{"/..", "/a_b"} {
		if got, err := CgroupPaths(root); err == nil {
			t.Errorf("%q: paths %v, want an error", root, got)
		}
	}
}

func TestRemoveCgroupTakesTheTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "kubepods")
	if err := os.MkdirAll(filepath.Join(top, "burstable", "podu1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroup(t.Context(), top); err != nil || !gone(top) {
		t.Errorf("error %v, gone %v", err, gone(top))
	}
	if err := removeCgroup(t.Context(), top); err != nil {
		t.Errorf("absent tree: %v", err)
	}
}
