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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/cleanup"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// claims are claims in memory, each bound to a volume of its own name.
type claims struct {
	volumes map[string]corev1.PersistentVolumeSpec
	// away is the error of every request while the API server is away.
	away error
}

func (c *claims) GetPersistentVolumeClaim(_ context.Context, namespace,
	name string,
) (*corev1.PersistentVolumeClaim, error) {
	if _, ok := c.volumes[name]; !ok && c.away == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: name},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, c.away
}

func (c *claims) GetPersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: c.volumes[name]}, c.away
}

func (c *claims) PatchPersistentVolumeClaimStatus(context.Context, string, string, []byte,
) (*corev1.PersistentVolumeClaim, error) {
	return nil, errors.Join(errors.New("no claim grows here"), c.away)
}

// localVolume is a volume for one pod at a time.
func localVolume(path string) corev1.PersistentVolumeSpec {
	return corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
	}
}

func claim(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}

// A restart while the API server is away finds the volumes of claims mounted, and unmounts them when their pods end.
func TestClaimsSurviveARestartWithoutTheAPIServer(t *testing.T) {
	data := t.TempDir()
	inWorld(t, func(w *world) {
		w.claims.volumes = map[string]corev1.PersistentVolumeSpec{"pv": localVolume(data)}
		w.start()
		w.ready("u1", "u2")
		w.update(podSpec("u1", claim("pv")), topic.Syncing)
		w.expect("u1", "mounted: pv=mounted")
		dir := w.dir("u1", "local-volume", "pv")
		if mounted, err := mounts.Mounted(dir); err != nil || !mounted {
			t.Fatalf("%s is mounted: %v, %v", dir, mounted, err)
		}
		w.stop()
		w.claims.away = errors.New("the API server is away")
		w.start()
		w.expect("u1", "mounted: pv=mounted")

		// The volume still is the first pod's alone, as is seen when the API server is back.
		w.claims.away = nil
		w.update(podSpec("u2", claim("pv")), topic.Syncing)
		w.expect("u2", `failed: pv=failed(MountVolume.SetUp failed for volume "pv" : `+plugin.ErrInUse.Error()+")")
		w.update(podSpec("u1", claim("pv")), topic.Terminated)
		w.expect("u1", "unmounted: pv=unmounted")
		if !w.empty("u1") {
			t.Error("something is left of the first pod")
		}
		w.advance(time.Second)
		w.expect("u2", "mounted: pv=mounted")
		w.update(podSpec("u2", claim("pv")), topic.Terminated)
		if _, err := os.Stat(data); err != nil || !w.empty("u2") {
			t.Errorf("left of the second pod: %v; the data: %v", !w.empty("u2"), err)
		}
		for _, e := range w.events.all() {
			if !strings.Contains(e, plugin.ErrInUse.Error()) {
				t.Errorf("an Event of a volume that was mounted: %s", e)
			}
		}
	})
}

// The reason of a volume that should be a device is another one. It is looked at again after ten seconds at most, and
// told of ever more seldom.
func TestClaimThatCannotBeMapped(t *testing.T) {
	inWorld(t, func(w *world) {
		block, volume := corev1.PersistentVolumeBlock, localVolume("/no/such/disk")
		volume.VolumeMode = &block
		w.claims.volumes = map[string]corev1.PersistentVolumeSpec{"pv": volume}
		w.start()
		p := podSpec("u1", claim("pv"))
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "pv", DevicePath: "/dev/xvda"}}
		w.update(p, topic.Syncing)
		list := w.events.all()
		if len(list) != 1 ||
			!strings.HasPrefix(list[0], `FailedMapVolume pod-u1: MapVolume.EvalHostSymlinks failed for volume "pv" : `) {
			t.Fatalf("events: %q", list)
		}
		w.advance(time.Minute)
		// After 0.5, 1.5, 3.5, 7.5, 15.5 s, and every ten.
		w.metric("storage_operation_duration_seconds", 10)
		w.labelled("storage_operation_duration_seconds", "operation_name", "map_volume")
		if got := len(w.events.all()); got != 7 {
			t.Errorf("%d Events in a minute, want 7", got)
		}
	})
}

// Volumes that no container uses are left alone, until an ephemeral container is the first to use one.
func TestUnusedVolumes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.ready("u1")
		p := podSpec("u1")
		p.Spec.Volumes = []corev1.Volume{configMap("missing"), emptyDir("spare", ""), claim("none")}
		w.update(p, topic.Syncing)
		w.expect("u1", "mounted:")
		p = p.DeepCopy()
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", VolumeMounts: []corev1.VolumeMount{{Name: "spare", MountPath: "/spare"}},
		}}}
		w.update(p, topic.Syncing)
		w.expect("u1", "mounted: spare=mounted")
		w.update(p, topic.Terminated)
		w.expect("u1", "unmounted: spare=unmounted")
		if list := w.events.all(); len(list) > 0 || !w.empty("u1") || w.configMaps.owners() > 0 {
			t.Errorf("events %q; left on disk: %v; objects watched for %d pods", list, !w.empty("u1"), w.configMaps.owners())
		}
	})
}

// patient is a plugin whose Mount takes ten minutes and says so.
type patient struct{ ended chan error }

func (p patient) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	for range 10 {
		time.Sleep(time.Minute)
		r.Calls.Alive()
	}
	p.ended <- context.Cause(ctx)
	return plugin.Result{HostPath: "/slow"}, nil
}

func (patient) Unmount(context.Context, string) error { return nil }

// Work that gets on may take as long as it needs.
func TestLongWork(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := patient{make(chan error, 1)}
		w.kinds = plugin.List{{Name: "slow", Claims: func(v *corev1.Volume) bool { return v.Name == "slow" }, Plugin: slow}}
		w.start()
		w.update(podSpec("u1", emptyDir("slow", "")), topic.Syncing)
		w.advance(9 * time.Minute)
		w.expect("u1", `pending: slow=pending(volume "slow": the mount takes longer than 10s)`)
		if w.health.get() != topic.Healthy {
			t.Errorf("health is %s while a volume gets on", w.health.get())
		}
		w.advance(2 * time.Minute)
		w.expect("u1", "mounted: slow=mounted")
		if err := <-slow.ended; err != nil {
			t.Errorf("it was told to stop: %v", err)
		}
	})
}

// A mapped device of a kind that kubelot doesn't have isn't removed with its pod.
func TestSweepLeavesForeignDevices(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, plugin.DevicesDir, "kubernetes.io~rbd")
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.Symlink("/dev/null", filepath.Join(dir, "disk"))); err != nil {
		t.Fatal(err)
	}
	err := cleanup.Pod(t.Context(), root, plugin.All(plugin.Objects{}), func() {})
	if err == nil || !strings.Contains(err.Error(), "volume of the kind kubernetes.io/rbd: "+filepath.Join(dir, "disk")+
		" is still in use") {
		t.Errorf("got %v", err)
	}
}
