package volume

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// labeling is a kind of volume that is mounted with SELinux labels.
type labeling struct{ book *selinux.Book }

func (l labeling) Mount(_ context.Context, r plugin.Request) (plugin.Result, error) {
	label, err := l.book.Label(r.Pod, r.Volume.Name, selinux.Volume{
		ID: "x", Name: "pv", Plugin: "k", Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
	})
	if err != nil {
		return plugin.Result{}, plugin.Unprocessed(r.Volume.Name, err)
	}
	return plugin.Result{HostPath: "/" + label}, nil
}

func (labeling) Unmount(context.Context, string) error { return nil }

// A pod that ends makes room for another label.
func TestLabelOfTheNextPod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.labels = selinux.NewBook(func(o *corev1.SELinuxOptions) (string, error) { return o.Level, nil }, false)
		w.kinds = plugin.List{{Claims: func(v *corev1.Volume) bool { return v.Name == "data" }, Plugin: labeling{w.labels}}}
		w.start()
		w.ready("u1", "u2")
		as := func(uid, level string) *corev1.Pod {
			p := podSpec(uid, corev1.Volume{Name: "data"})
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
			return p
		}
		first := as("u1", "c1")
		w.update(first, topic.Syncing)
		w.expect("u1", "mounted: data=mounted")
		w.update(as("u2", "c2"), topic.Syncing)
		const conflict = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to " +
			`process volumes=[data]: conflicting SELinux labels of volume pv: "c1" and "c2": give the pods that share it ` +
			"on a node the same seLinuxOptions, or all of them seLinuxChangePolicy: Recursive"
		w.expect("u2", "failed: data=failed("+conflict+")")
		if list := w.events.all(); len(list) != 1 || list[0] != "FailedMount pod-u2: "+conflict {
			t.Errorf("events: %q", list)
		}
		w.update(first, topic.Terminated)
		w.expect("u1", "unmounted: data=unmounted")
		w.advance(firstPause)
		w.expect("u2", "mounted: data=mounted")
	})
}
