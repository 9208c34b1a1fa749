package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/tree"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestLifeOfAPod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.configMaps.byName["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"key": "1"}}
		w.start()
		w.ready("u1")
		p := podSpec("u1", emptyDir("disk", ""), emptyDir("mem", corev1.StorageMediumMemory), configMap("cm"), labels("meta"))
		w.update(p, topic.Syncing)
		const all = "cm=mounted disk=mounted mem=mounted meta=mounted"
		w.expect("u1", "mounted: "+all)
		if got := w.file(filepath.Join(w.dir("u1", "configmap", "cm"), "key")); got != "1" {
			t.Errorf("the ConfigMap's file has %q", got)
		}

		w.configMaps.set("cm", &corev1.ConfigMap{Data: map[string]string{"key": "2"}})
		w.rest()
		if got := w.file(filepath.Join(w.dir("u1", "configmap", "cm"), "key")); got != "2" {
			t.Errorf("after the change the ConfigMap's file has %q", got)
		}
		p = p.DeepCopy()
		p.Labels["v"] = "2"
		w.update(p, topic.Syncing)
		if got := w.file(filepath.Join(w.dir("u1", "downward-api", "meta"), "labels")); got != `v="2"` {
			t.Errorf("after the change the labels are %q", got)
		}

		w.update(p, topic.Terminating)
		w.expect("u1", "mounted: "+all)
		w.update(p, topic.Terminated)
		w.expect("u1", "unmounted: "+strings.ReplaceAll(all, "=mounted", "=unmounted"))
		if !w.empty("u1") || w.configMaps.owners() != 0 {
			t.Errorf("left on disk: %v; objects still watched for %d pods", !w.empty("u1"), w.configMaps.owners())
		}
		if err := w.pods.Delete("u1"); err != nil {
			t.Fatal(err)
		}
		w.ready()
		w.expect("u1", "none")
		if len(w.events.all()) > 0 {
			t.Errorf("events: %v", w.events.all())
		}
	})
}

func TestPodWithoutVolumes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.update(podSpec("u1"), topic.Syncing)
		w.expect("u1", "mounted:")
		w.update(podSpec("u1"), topic.Terminated)
		w.expect("u1", "unmounted:")
	})
}

func TestMissingObject(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.update(podSpec("u1", configMap("cm"), emptyDir("disk", "")), topic.Syncing)
		const missing = `MountVolume.SetUp failed for volume "cm" : configmap "cm" not found`
		w.expect("u1", "failed: cm=failed("+missing+") disk=mounted")
		if list := w.events.all(); len(list) != 1 || list[0] != "FailedMount pod-u1: "+missing {
			t.Fatalf("events: %q", w.events.all())
		}
		// 500 ms, doubling: tries after 0.5, 1.5, 3.5 and 7.5 s.
		w.advance(8 * time.Second)
		if len(w.events.all()) != 5 {
			t.Errorf("%d tries in 8 s, want 5", len(w.events.all()))
		}
		before := time.Now()
		w.configMaps.set("cm", &corev1.ConfigMap{Data: map[string]string{"key": "1"}})
		w.rest()
		w.expect("u1", "mounted: cm=mounted disk=mounted")
		if waited := time.Since(before); waited > 0 {
			t.Errorf("mounted %s after the object appeared", waited)
		}
	})
}

// A ConfigMap that goes away leaves the files of pods that run.
func TestObjectRemovedLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.configMaps.byName["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"key": "1"}}
		w.start()
		w.update(podSpec("u1", configMap("cm")), topic.Syncing)
		w.configMaps.set("cm", nil)
		w.rest()
		w.expect("u1", `mounted: cm=mounted(MountVolume.SetUp failed for volume "cm" : configmap "cm" not found)`)
		if got := w.file(filepath.Join(w.dir("u1", "configmap", "cm"), "key")); got != "1" {
			t.Errorf("the file has %q", got)
		}
	})
}

// A restart while the API server is away leaves pods as they are, and new containers of theirs may start.
func TestRestartWithoutTheObject(t *testing.T) {
	inWorld(t, func(w *world) {
		w.configMaps.byName["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"key": "1"}}
		w.start()
		w.update(podSpec("u1", configMap("cm")), topic.Syncing)
		w.stop()
		w.configMaps.byName["shop/cm"] = nil
		w.start()
		w.expect("u1", `mounted: cm=mounted(MountVolume.SetUp failed for volume "cm" : configmap "cm" not found)`)
		w.configMaps.set("cm", &corev1.ConfigMap{Data: map[string]string{"key": "2"}})
		w.rest()
		w.expect("u1", "mounted: cm=mounted")
		if got := w.file(filepath.Join(w.dir("u1", "configmap", "cm"), "key")); got != "2" {
			t.Errorf("the file has %q", got)
		}
	})
}

func TestHangingVolumeHoldsUpItsPodOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		nfs := blocking{make(chan struct{})}
		w.kinds = plugin.List{{Claims: func(v *corev1.Volume) bool { return v.Name == "nfs" }, Plugin: nfs}}
		w.start()
		hung := podSpec("u1", corev1.Volume{Name: "nfs"}, emptyDir("disk", ""))
		w.update(hung, topic.Syncing)
		w.update(podSpec("u2", emptyDir("disk", "")), topic.Syncing)
		w.expect("u1", "pending: disk=mounted nfs=pending")
		w.expect("u2", "mounted: disk=mounted")
		w.advance(slowAfter)
		w.expect("u1", `pending: disk=mounted nfs=pending(volume "nfs": the mount takes longer than 10s)`)
		w.advance(lateAfter)
		if got := w.state("u1"); !strings.HasPrefix(got, "failed: ") || !strings.Contains(got, "has not come back") {
			t.Errorf("state %s", got)
		}
		if len(w.events.all()) != 1 {
			t.Errorf("events: %q", w.events.all())
		}
		if w.health.get() != topic.Degraded {
			t.Errorf("health is %s", w.health.get())
		}
		w.update(hung, topic.Terminated)
		if got := w.state("u1"); !strings.HasPrefix(got, "failed: disk=unmounted nfs=") &&
			!strings.HasPrefix(got, "pending: disk=unmounted nfs=") {
			t.Errorf("state %s", got)
		}
		close(nfs.letGo)
		w.rest()
		w.expect("u1", "unmounted: disk=unmounted nfs=unmounted")
		if w.health.get() != topic.Healthy {
			t.Errorf("health is %s", w.health.get())
		}
	})
}

func TestTerminatedWhileMounting(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := blocking{make(chan struct{})}
		w.kinds = plugin.List{{Claims: func(v *corev1.Volume) bool { return v.Name == "slow" }, Plugin: slow}}
		w.start()
		p := podSpec("u1", corev1.Volume{Name: "slow"})
		w.update(p, topic.Syncing)
		w.update(p, topic.Terminated)
		w.expect("u1", "none")
		close(slow.letGo)
		w.rest()
		w.expect("u1", "unmounted: slow=unmounted")
		if len(w.events.all()) > 0 {
			t.Errorf("events: %q", w.events.all())
		}
	})
}

func TestRestartAdopts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.configMaps.byName["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"key": "1"}}
		w.start()
		p := podSpec("u1", emptyDir("disk", ""), emptyDir("mem", corev1.StorageMediumMemory), configMap("cm"))
		q := podSpec("u2", emptyDir("mem", corev1.StorageMediumMemory), emptyDir("never", ""))
		w.update(p, topic.Syncing)
		w.update(q, topic.Syncing)
		for _, dir := range []string{
			w.dir("u1", "empty-dir", "disk"), w.dir("u1", "empty-dir", "mem"),
			w.dir("u2", "empty-dir", "mem"),
		} {
			if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("data"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		link, _ := os.Readlink(filepath.Join(w.dir("u1", "configmap", "cm"), "..data"))
		w.stop()

		// While the daemon is away, one pod begins to terminate, and one of its volumes was lost.
		w.update(q, topic.Terminating)
		if err := tree.Remove(t.Context(), w.dir("u2", "empty-dir", "never")); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.expect("u1", "mounted: cm=mounted disk=mounted mem=mounted")
		for _, dir := range []string{
			w.dir("u1", "empty-dir", "disk"), w.dir("u1", "empty-dir", "mem"),
			w.dir("u2", "empty-dir", "mem"),
		} {
			if got := w.file(filepath.Join(dir, "precious")); got != "data" {
				t.Errorf("%s: %q", dir, got)
			}
		}
		if now, _ := os.Readlink(filepath.Join(w.dir("u1", "configmap", "cm"), "..data")); now != link {
			t.Error("unchanged files were written again")
		}
		if _, err := os.Stat(w.dir("u2", "empty-dir", "never")); err == nil {
			t.Error("a volume was set up for a pod that terminates")
		}
		w.update(p, topic.Terminated)
		w.update(q, topic.Terminated)
		w.expect("u1", "unmounted: cm=unmounted disk=unmounted mem=unmounted")
		w.expect("u2", "unmounted: mem=unmounted never=unmounted")
		if !w.empty("u1") || !w.empty("u2") {
			t.Error("something is left on disk")
		}
	})
}

func TestGarbageIsIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		bad := podSpec("u1", emptyDir("../../escape", ""))
		w.update(bad, topic.Syncing)
		w.expect("u1", "none")
		if err := w.pods.Set("u2", topic.Pod{Lifecycle: topic.Syncing}); err != nil {
			t.Fatal(err)
		}
		w.update(podSpec("u3", emptyDir("disk", "")), topic.Syncing)
		w.expect("u3", "mounted: disk=mounted")
	})
}

// A static pod may come back under the same UID.
func TestPodComesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		p := podSpec("u1", emptyDir("disk", ""))
		for range 2 {
			w.update(p, topic.Syncing)
			w.expect("u1", "mounted: disk=mounted")
			w.update(p, topic.Terminated)
			w.expect("u1", "unmounted: disk=unmounted")
		}
		w.update(p, topic.Syncing)
		w.expect("u1", "mounted: disk=mounted")
	})
}

func TestSubPath(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		p := podSpec("u1", emptyDir("disk", ""))
		w.update(p, topic.Syncing)
		call := func(volume, sub string) (map[int]string, error) {
			reply, err := topic.VolumeSubPath.Do(context.Background(), w.podsync, topic.SubPathRequest{
				Ref: topic.RefOf(p), Container: "app", Mounts: []topic.SubPath{{Index: 2, Volume: volume, SubPath: sub}},
			})
			return reply.Paths, err
		}
		paths, err := call("disk", "a/b")
		if want := filepath.Join(w.root, "pods", "u1", "volume-subpaths", "disk", "app", "2"); err != nil ||
			paths[2] != want {
			t.Fatalf("got %v, %v; want %s", paths, err, want)
		}
		if _, err := call("disk", "../x"); !errors.Is(err, bus.ErrRefused) ||
			!strings.Contains(err.Error(), `failed to prepare subPath for volumeMount "disk" of container "app"`) {
			t.Errorf("a path that leads out: %v", err)
		}
		w.service.tell(func() { w.service.pods["u1"].binds["app"] = true })
		if _, err := call("disk", "a"); !errors.Is(err, bus.ErrUnavailable) ||
			!strings.Contains(err.Error(), "an earlier call goes on") {
			t.Errorf("a second call while the first one hangs: %v", err)
		}
		w.service.tell(func() { delete(w.service.pods["u1"].binds, "app") })
		if _, err := call("none", "a"); !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), "not mounted") {
			t.Errorf("an unknown volume: %v", err)
		}
		w.update(p, topic.Terminated)
		w.expect("u1", "unmounted: disk=unmounted")
		if !w.empty("u1") {
			t.Error("something is left on disk")
		}
		if _, err := call("disk", "a"); !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), "terminated") {
			t.Errorf("a terminated pod: %v", err)
		}
	})
}

// Calls that come while the daemon stops don't hold it up.
func TestStopAmidCalls(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		busy := make(chan struct{})
		w.service.tell(func() { <-busy })
		for range 20 {
			go func() {
				_, _ = topic.VolumeSubPath.Do(context.Background(), w.podsync, topic.SubPathRequest{Container: "app"})
			}()
		}
		w.rest()
		time.AfterFunc(time.Second, func() { close(busy) })
		w.stop()
	})
}

func TestNodeAllocatableArrivesLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		v := labels("meta")
		v.DownwardAPI.Items = []corev1.DownwardAPIVolumeFile{{
			Path:             "cpu",
			ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "app", Resource: "limits.cpu"},
		}}
		w.update(podSpec("u1", v), topic.Syncing)
		if got := w.state("u1"); !strings.Contains(got, "not known yet") {
			t.Errorf("state %s", got)
		}
		node := corev1.Node{}
		node.Status.Allocatable = corev1.ResourceList{"cpu": *resourceQuantity("3")}
		if err := topic.NodeObject.Writer(w.podsync).Set("", node); err != nil {
			t.Fatal(err)
		}
		w.rest()
		w.expect("u1", "mounted: meta=mounted")
		if got := w.file(filepath.Join(w.dir("u1", "downward-api", "meta"), "cpu")); got != "3" {
			t.Errorf("cpu is %q", got)
		}
	})
}

// After a start nothing is decided before what the bus retains is there: no volume fails for want of it.
func TestStartWithRetainedStates(t *testing.T) {
	inWorld(t, func(w *world) {
		v := labels("meta")
		v.DownwardAPI.Items = []corev1.DownwardAPIVolumeFile{{
			Path:             "cpu",
			ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "app", Resource: "limits.cpu"},
		}}
		w.update(podSpec("u1", v), topic.Syncing)
		node := corev1.Node{}
		node.Status.Allocatable = corev1.ResourceList{"cpu": *resourceQuantity("3")}
		if err := topic.NodeObject.Writer(w.podsync).Set("", node); err != nil {
			t.Fatal(err)
		}
		w.rest()
		w.start()
		w.expect("u1", "mounted: meta=mounted")
		if list := w.events.all(); len(list) > 0 {
			t.Errorf("events: %q", list)
		}
	})
}
