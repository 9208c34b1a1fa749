package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/mounts"
)

func resourceQuantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

// leave makes what an earlier run has left of a pod.
func (w *world) leave(uid string) {
	w.t.Helper()
	disk, mem := w.dir(uid, "empty-dir", "disk"), w.dir(uid, "secret", "mem")
	sub := filepath.Join(w.root, "pods", uid, "volume-subpaths", "disk", "app", "0")
	for _, dir := range []string{disk, mem, sub} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := mounts.EnsureTmpfs(mem, mounts.Tmpfs{Mode: 0o755}); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "file"), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) relisted(running ...string) {
	w.t.Helper()
	seen := topic.PLEGEvent.Writer(w.podsync)
	for _, uid := range running {
		o := topic.PodObservation{Containers: []topic.Container{{State: topic.ContainerRunning}}}
		if err := seen.Set(uid, o); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := topic.NodeRuntime.Writer(w.podsync).Set("", topic.Runtime{FirstRelist: time.Now()}); err != nil {
		w.t.Fatal(err)
	}
	w.rest()
}

func TestOrphansWaitForSourcesAndRuntime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leave("gone")
		w.leave("wanted")
		w.leave("running")
		w.start()
		if w.empty("gone") {
			t.Fatal("removed before the sources are ready")
		}
		w.ready("wanted")
		w.advance(time.Minute)
		if w.empty("gone") {
			t.Fatal("removed before it is known what runs")
		}
		w.relisted("running")
		w.advance(searchPause)
		if !w.empty("gone") {
			t.Error("the volumes of a pod that is gone are still there")
		}
		w.metric("kubelet_orphan_pod_cleaned_volumes", 1)
		if w.empty("wanted") || w.empty("running") {
			t.Errorf("removed of a pod that is wanted: %v; of one that runs: %v", w.empty("wanted"), w.empty("running"))
		}
		if err := topic.PLEGEvent.Writer(w.podsync).Delete("running"); err != nil {
			t.Fatal(err)
		}
		w.advance(2 * searchPause)
		if !w.empty("running") {
			t.Error("the volumes of a pod that no longer runs are still there")
		}
	})
}

// What was published of pods that went away while the daemon was down is removed.
func TestStaleStateIsRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.update(podSpec("u1", emptyDir("disk", "")), topic.Syncing)
		w.stop()
		if err := w.pods.Delete("u1"); err != nil {
			t.Fatal(err)
		}
		w.ready()
		w.relisted()
		w.start()
		w.expect("u1", "none")
		if !w.empty("u1") {
			t.Error("its volumes are still there")
		}
	})
}

// A tombstone alone removes nothing while a source may still want the pod.
func TestTombstoneWithoutSources(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.update(podSpec("u1", emptyDir("disk", "")), topic.Syncing)
		if err := w.pods.Delete("u1"); err != nil {
			t.Fatal(err)
		}
		w.rest()
		w.expect("u1", "mounted: disk=mounted")
		w.ready("u1")
		w.expect("u1", "mounted: disk=mounted")
		w.ready()
		w.expect("u1", "none")
		if !w.empty("u1") {
			t.Error("its volumes are still there")
		}
	})
}

func TestSweepOfForeignVolumes(t *testing.T) {
	inWorld(t, func(w *world) {
		foreign := filepath.Join(w.root, "pods", "u1", "volumes", "kubernetes.io~csi", "data", "mount")
		if err := os.MkdirAll(foreign, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := mounts.EnsureTmpfs(foreign, mounts.Tmpfs{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		w.start()
		p := podSpec("u1", emptyDir("disk", ""))
		w.update(p, topic.Syncing)
		w.update(p, topic.Terminated)
		if got := w.state("u1"); !strings.HasPrefix(got, "failed: (remains on disk)=failed(") ||
			!strings.Contains(got, "kubernetes.io/csi") {
			t.Errorf("state %s", got)
		}
		if mounted, err := mounts.Mounted(foreign); !mounted || err != nil {
			t.Errorf("a volume of another kind was unmounted: %v", err)
		}
	})
}
