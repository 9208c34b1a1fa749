package persistent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/iscsi"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/scsi"
	"kubelot.dev/services/volume/internal/selinux"
)

const (
	testIQN  = "iqn.2026-01.dev.kubelot:disk"
	testName = "kubernetes.io/iscsi/10.0.0.1:" + testIQN + ":0"
)

// cluster is the attach-detach controller's side.
type cluster struct {
	// used are the names of volumes by place, waits what they wait for.
	used   map[string]string
	waits  string
	secret map[string][]byte
	labels *selinux.Book
}

func (c *cluster) Labels() *selinux.Book { return c.labels }

func (c *cluster) Use(place, name string) {
	if c.used[place] = name; name == "" {
		delete(c.used, place)
	}
}

func (c *cluster) Waits(string) string { return c.waits }

func (c *cluster) Secret(_ context.Context, namespace, name string) (map[string][]byte, error) {
	if c.secret == nil {
		return nil, errors.New("couldn't get secret " + namespace + "/" + name + " error: not found")
	}
	return c.secret, nil
}

// remoteBed is a bed whose volume is the disk of a target that iscsiadm of testdata plays, with the directory of what
// is played.
func remoteBed(t *testing.T) (*bed, *cluster, string) {
	fake := t.TempDir()
	program, err := filepath.Abs("../iscsi/testdata")
	must(t, err)
	t.Setenv("PATH", program+":"+os.Getenv("PATH"))
	t.Setenv("FAKE", fake)
	must(t, os.Mkdir(filepath.Join(fake, "luns"), 0o755))
	must(t, os.Symlink(disk(t), filepath.Join(fake, "luns/0")))
	b := newBed(t, corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{
		TargetPortal: "10.0.0.1", IQN: testIQN, FSType: "ext4",
	}})
	c := &cluster{used: map[string]string{}}
	b.again(c, fake)
	return b, c, fake
}

// again is another start of the daemon.
func (b *bed) again(c *cluster, fake string) {
	b.kinds = Kinds(b.root, b, nil, c)
	for _, k := range b.kinds {
		if r, ok := k.Plugin.(*remote); ok {
			if _, ok := r.network.(iscsiDisks); ok {
				r.network = iscsiDisks{iscsi.NewDisks(b.root, scsi.Places{
					Sys: filepath.Join(fake, "sys"), Dev: "/dev", ByPath: filepath.Join(fake, "by-path"),
				}), b.root, c}
			}
		}
	}
}

// ended expects that nobody is logged in, that the node uses no disk, and that nothing is left on it.
func (b *bed) ended(c *cluster, fake string) {
	b.t.Helper()
	b.clean()
	if left, err := mounts.Names(filepath.Join(fake, "sessions")); err != nil || len(left) > 0 {
		b.t.Errorf("sessions are left: %q, %v", left, err)
	}
	if len(c.used) > 0 {
		b.t.Errorf("the node is said to use %v", c.used)
	}
	if left, err := mounts.Names(iscsi.Top(b.root)); err != nil || len(left) > 0 && left[0] != "volumeDevices" {
		b.t.Errorf("global directories are left: %q, %v", left, err)
	}
}

func TestRemoteDisk(t *testing.T) {
	b, c, fake := remoteBed(t)
	one, two := b.request("u-1"), b.request("u-2")
	group := int64(4711)
	one.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	two.Volume.PersistentVolumeClaim.ReadOnly = true
	first, second := b.mount(one), b.mount(two)
	if want := filepath.Join(b.root, "pods/u-1/volumes/kubernetes.io~iscsi/pv"); first.HostPath != want ||
		first.Plugin != iscsi.Name {
		t.Errorf("result %+v, want it at %s", first, want)
	}
	must(t, os.WriteFile(filepath.Join(first.HostPath, "file"), []byte("x"), 0o600))
	if data, err := os.ReadFile(filepath.Join(second.HostPath, "file")); string(data) != "x" {
		t.Errorf("the second pod reads %q, %v", data, err)
	}
	if err := os.WriteFile(filepath.Join(second.HostPath, "file"), nil, 0o600); err == nil || !second.ReadOnly {
		t.Error("the read-only one can be written to")
	}
	if info, err := os.Stat(first.HostPath); err != nil || groupOf(info) != group {
		t.Errorf("the group is wrong: %v, %v", info, err)
	}
	for place, name := range c.used {
		if name != testName || !strings.HasPrefix(place, b.root) {
			t.Errorf("the node uses %s at %s", name, place)
		}
	}
	// A restart: nothing is asked of anybody.
	c.waits = "volumesAttached"
	b.again(c, fake)
	one.Known = first
	asked := b.asked
	if again := b.mount(one); untimed(again) != untimed(first) || b.asked != asked {
		t.Errorf("again: %+v", again)
	}
	b.unmount(one, first)
	if !isMount(t, second.HostPath) {
		t.Error("the other pod has lost its volume")
	}
	b.unmount(two, second)
	b.ended(c, fake)
}

// inlineDisk is the request of a pod that names the disk itself.
func (b *bed) inlineDisk(uid string) plugin.Request {
	r := b.request(uid)
	r.Volume.VolumeSource = corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
		TargetPortal: "10.0.0.1", IQN: testIQN, FSType: "ext4", SessionCHAPAuth: true,
		SecretRef: &corev1.LocalObjectReference{Name: "chap"},
	}}
	return r
}

func TestRemoteDiskOfAPodItself(t *testing.T) {
	b, c, fake := remoteBed(t)
	r := b.inlineDisk("u-1")
	b.fails(r, `FailedMount MountVolume.WaitForAttach failed for volume "vol" : `+
		`couldn't get secret shop/chap error: not found`)
	c.secret = map[string][]byte{"node.session.auth.password": []byte("s3cret")}
	result := b.mount(r)
	log, err := os.ReadFile(filepath.Join(fake, "log"))
	must(t, err)
	if !strings.Contains(string(log), "auth.password -v s3cret") {
		t.Errorf("the calls are\n%s", log)
	}
	// The daemon that comes finds it, and takes it back by its place alone.
	b.again(c, fake)
	if again := b.mount(r); again != result {
		t.Errorf("again: %+v", again)
	}
	r.Ending = true
	if again := b.mount(r); again != result {
		t.Errorf("while the pod ends: %+v", again)
	}
	b.again(c, fake)
	b.unmount(r, result)
	b.ended(c, fake)
}

func TestRemoteDiskWaitsUntilItIsAttached(t *testing.T) {
	b, c, fake := remoteBed(t)
	c.waits = "volume x is not in the Node's status.volumesAttached yet"
	r := b.request("u-1")
	_, err := b.kinds.For(r.Volume).Plugin.Mount(t.Context(), r)
	var failure *plugin.Failure
	if !errors.As(err, &failure) || !failure.OnItsWay || !strings.Contains(err.Error(), c.waits) {
		t.Errorf("error %v", err)
	}
	place := filepath.Join(b.root, "pods/u-1/volumes/kubernetes.io~iscsi/pv")
	if c.used[place] != testName {
		t.Errorf("the node uses %v, want the disk before it is attached", c.used)
	}
	if calls, err := os.ReadFile(filepath.Join(fake, "log")); err == nil {
		t.Errorf("calls before the disk is attached:\n%s", calls)
	}
	b.unmount(r, plugin.Result{HostPath: place})
	b.ended(c, fake)
}

func TestRemoteDiskThatFailsLeavesNothing(t *testing.T) {
	b, c, fake := remoteBed(t)
	r := b.request("u-1")
	must(t, os.WriteFile(filepath.Join(fake, "fail"), []byte("8 --login\n"), 0o600))
	_, err := b.kinds.For(r.Volume).Plugin.Mount(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "failed to get any path for iscsi disk") {
		t.Errorf("error %v", err)
	}
	b.unmount(r, plugin.Result{HostPath: filepath.Join(b.root, "pods/u-1/volumes/kubernetes.io~iscsi/pv")})
	b.ended(c, fake)
}

// A disk that is busy after its last pod has gone is tried again until it is free.
func TestRemoteDiskThatIsBusy(t *testing.T) {
	b, c, fake := remoteBed(t)
	result := b.mount(b.request("u-1"))
	held, err := os.Create(filepath.Join(iscsi.Top(b.root), "iface-default", "10.0.0.1:3260-"+testIQN+"-lun-0", "held"))
	must(t, err)
	kind, _, ok := b.kinds.ByPath(filepath.Join(b.root, "pods/u-1"), result.HostPath)
	if !ok {
		t.Fatalf("no kind unmounts %s", result.HostPath)
	}
	for range 2 {
		if err := kind.Plugin.Unmount(t.Context(), result.HostPath); err == nil {
			t.Error("a disk that is busy is said to be free")
		}
	}
	must(t, held.Close())
	must(t, kind.Plugin.Unmount(t.Context(), result.HostPath))
	b.ended(c, fake)
}

// Whoever was killed between the pod's end and the logout leaves the disk to the next start.
func TestRemoteDiskOfNoPod(t *testing.T) {
	b, c, fake := remoteBed(t)
	result := b.mount(b.request("u-1"))
	must(t, mountpoint.Unmount(result.HostPath))
	must(t, os.RemoveAll(filepath.Join(b.root, "pods/u-1")))
	c.used = map[string]string{}
	b.again(c, fake)
	for _, name := range c.used {
		if name != testName || len(c.used) != 1 {
			t.Errorf("after the start the node uses %v", c.used)
		}
	}
	for _, k := range b.kinds {
		if r, ok := k.Plugin.(*remote); ok {
			must(t, r.Leftovers(t.Context()))
		}
	}
	b.ended(c, fake)
}

func TestRemoteDevice(t *testing.T) {
	b, c, fake := remoteBed(t)
	b.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
	one, two := b.request("u-1"), b.request("u-2")
	first, second := b.mount(one), b.mount(two)
	if want := filepath.Join(b.root, "pods/u-1/volumeDevices/kubernetes.io~iscsi/pv"); first.Device != want {
		t.Errorf("result %+v, want it at %s", first, want)
	}
	lun, err := filepath.EvalSymlinks(filepath.Join(fake, "luns/0"))
	must(t, err)
	if got, err := filepath.EvalSymlinks(first.Device); err != nil || got != lun {
		t.Errorf("the link leads to %s, want %s: %v", got, lun, err)
	}
	global := filepath.Join(b.root, "plugins/kubernetes.io/iscsi/volumeDevices/iface-default",
		"10.0.0.1:3260-"+testIQN+"-lun-0")
	if loop, err := device.LoopOf(filepath.Join(global, "u-1")); err != nil || loop == "" {
		t.Errorf("no loop device holds the disk: %v", err)
	}
	b.again(c, fake)
	one.Known = first
	asked := b.asked
	if again := b.mount(one); untimed(again) != untimed(first) || b.asked != asked {
		t.Errorf("again: %+v", again)
	}
	b.unmount(one, first)
	if _, err := os.Stat(filepath.Join(global, "u-2")); err != nil {
		t.Errorf("the other pod has lost its device: %v", err)
	}
	must(t, os.RemoveAll(filepath.Dir(first.Device)))
	// The second goes as after a restart, with its directory alone to tell of it.
	b.again(c, fake)
	b.unmount(two, second)
	b.ended(c, fake)
}

// detaching is a network with one disk, whose end a test gives.
type detaching struct {
	network
	global string
	ends   chan struct{}
}

func (detaching) kind() plugin.Kind { return plugin.Kind{} }

func (d detaching) globals(block bool) ([]string, error) {
	if block {
		return nil, nil
	}
	return []string{d.global}, nil
}

func (d detaching) detach(ctx context.Context, global string) error {
	ended, _ := plugin.Call(ctx, topic.DriverCall{Call: "iscsiadm --logout", Since: time.Unix(0, 0)})
	defer ended()
	<-d.ends
	return os.Remove(global)
}

// Who waits until a disk that no pod had is detached is told by which call.
func TestWhoWaitsForALeftoverIsToldOfItsCall(t *testing.T) {
	root := t.TempDir()
	global := filepath.Join(root, "plugins", "disk")
	must(t, os.MkdirAll(global, 0o750))
	synctest.Test(t, func(t *testing.T) {
		n := detaching{global: global, ends: make(chan struct{})}
		d := &remote{network: n, local: &local{root: root}}
		freed, got := make(chan error), make(chan error)
		go func() { freed <- d.Leftovers(t.Context()) }()
		synctest.Wait()
		var told []string
		waiter := plugin.Watched(t.Context(), "ns/waiter", func(c *topic.DriverCall) {
			if c != nil {
				told = append(told, plugin.Waits(c))
			}
		})
		go func() {
			giveBack, err := d.locks.Take(waiter, global)
			if err == nil {
				giveBack()
			}
			got <- err
		}()
		synctest.Wait()
		if want := []string{"iscsiadm --logout has not ended since 00:00:00 UTC"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		close(n.ends)
		must(t, <-freed)
		must(t, <-got)
	})
}
