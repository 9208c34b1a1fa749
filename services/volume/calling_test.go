package volume

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// caller is a plugin whose work are calls to a driver, each with an end that the test gives.
type caller struct{ ends chan error }

func (c caller) work(ctx context.Context, methods ...string) (err error) {
	for _, method := range methods {
		ended, _ := plugin.Call(ctx, topic.DriverCall{Driver: "d", Call: method, Since: time.Now()})
		err = <-c.ends
		if ended(); err != nil {
			return err
		}
	}
	return nil
}

func (c caller) Mount(ctx context.Context, _ plugin.Request) (plugin.Result, error) {
	if err := c.work(ctx, "NodeStageVolume", "NodePublishVolume"); err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{HostPath: "/mounted", Plugin: "kubernetes.io/csi:d", Migrated: true}, nil
}

func (c caller) Unmount(ctx context.Context, _ string) error {
	return c.work(ctx, "NodeUnpublishVolume")
}

// doing is the call that volume.state names.
func (w *world) doing() topic.DriverCall {
	w.t.Helper()
	all, err := topic.VolumeState.Read(w.t.Context(), w.podsync)
	if err != nil {
		w.t.Fatal(err)
	}
	if d := all["u1"].Volumes["disk"].Doing; d != nil {
		return *d
	}
	return topic.DriverCall{}
}

// A driver that takes long is named, with the call and since when it is under way.
func TestSlowDriverIsNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		c := caller{make(chan error)}
		w.kinds = plugin.List{{
			Name: "kubernetes.io/csi", Dir: "d", Plugin: c, Claims: func(v *corev1.Volume) bool { return v.Name == "disk" },
		}}
		w.start()
		p := podSpec("u1", corev1.Volume{Name: "disk"})
		w.update(p, topic.Syncing)
		since := time.Now()
		w.advance(slowAfter)
		w.expect("u1", `pending: disk=pending(volume "disk": the CSI driver d has not answered NodeStageVolume since `+
			clock(since)+")")
		if got := w.doing(); got != (topic.DriverCall{Driver: "d", Call: "NodeStageVolume", Since: since.UTC()}) {
			t.Errorf("it does %+v", got)
		}
		c.ends <- nil
		w.rest()
		w.expect("u1", `pending: disk=pending(volume "disk": the CSI driver d has not answered NodePublishVolume since `+
			clock(time.Now())+")")
		c.ends <- nil
		w.rest()
		w.expect("u1", "mounted: disk=mounted")
		w.metric("storage_operation_duration_seconds", 1)
		w.labelled("storage_operation_duration_seconds", "migrated", "true")
		w.labelled("storage_operation_duration_seconds", "volume_plugin", "kubernetes.io/csi:d")
		w.ready("u1")
		w.update(p, topic.Terminated)
		since = time.Now()
		w.advance(slowAfter)
		if got := w.state("u1"); !strings.Contains(got, "the CSI driver d has not answered NodeUnpublishVolume since "+
			clock(since)) {
			t.Error(got)
		}
		c.ends <- nil
		w.rest()
		w.expect("u1", "unmounted: disk=unmounted")
		if got := w.doing(); got != (topic.DriverCall{}) {
			t.Errorf("it still does %+v", got)
		}
	})
}

// sharing is a plugin whose volumes are one, on which one pod works at a time.
type sharing struct {
	caller
	locks *plugin.Locks
}

func (s sharing) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	giveBack, err := s.locks.Take(ctx, "v")
	if err != nil {
		return plugin.Result{}, err
	}
	defer giveBack()
	return s.caller.Mount(ctx, r)
}

// A pod that waits until a driver has answered another pod's call names the driver, the call and the other pod, also
// once it has given up for a moment.
func TestAnotherPodsSlowDriverIsNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		s := sharing{caller{make(chan error)}, new(plugin.Locks)}
		w.kinds = plugin.List{{Dir: "d", Plugin: s, Claims: func(v *corev1.Volume) bool { return v.Name == "disk" }}}
		w.start()
		w.update(podSpec("u2", corev1.Volume{Name: "disk"}), topic.Syncing)
		w.advance(time.Second)
		since := time.Now().Add(-time.Second)
		w.update(podSpec("u1", corev1.Volume{Name: "disk"}), topic.Syncing)
		w.advance(slowAfter)
		said := "the CSI driver d has not answered NodeStageVolume since " + clock(since) + ", for the pod shop/pod-u2"
		w.expect("u1", `pending: disk=pending(volume "disk": `+said+")")
		if got := w.doing(); got != (topic.DriverCall{
			Driver: "d", Call: "NodeStageVolume", Since: since.UTC(), Pod: "shop/pod-u2",
		}) {
			t.Errorf("it waits for %+v", got)
		}
		w.advance(opTimeout - slowAfter + time.Second)
		if got := w.state("u1"); !strings.Contains(got, "other work on v goes on: ") || !strings.Contains(got, said) {
			t.Errorf("given up: %s", got)
		}
		for range 4 {
			s.ends <- nil
			w.rest()
		}
		w.expect("u2", "mounted: disk=mounted")
		w.expect("u1", "mounted: disk=mounted")
	})
}

// What an attacher is waited for is said with the driver and since when. The Event is in the kubelet's words.
func TestAttacherIsNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		c := caller{make(chan error)}
		w.kinds = plugin.List{{Dir: "d", Plugin: c, Claims: func(v *corev1.Volume) bool { return v.Name == "disk" }}}
		w.start()
		w.update(podSpec("u1", corev1.Volume{Name: "disk"}), topic.Syncing)
		waits := func() {
			c.ends <- &plugin.Failure{
				Reason: "FailedMount", What: "wait : ", Err: errors.New("no"), OnItsWay: true, Attacher: "d", Unattached: true,
			}
			w.rest()
		}
		since := clock(time.Now())
		for began := time.Now(); time.Since(began) < waitsLong; w.advance(lastPause) {
			waits()
			w.expect("u1", "pending: disk=pending(wait : no (driver d, since "+since+"))")
		}
		waits()
		w.expect("u1", "failed: disk=failed(wait : no (driver d, since "+since+"))")
		if got := w.doing(); got.Call != topic.CallAttach || got.Driver != "d" {
			t.Errorf("it does %+v", got)
		}
		if got := w.events.all(); len(got) != 1 || got[0] != "FailedMount pod-u1: wait : no" {
			t.Errorf("events %q", got)
		}
		w.advance(lastPause)
		c.ends <- errors.New("another failure")
		w.rest()
		if got := w.doing(); got != (topic.DriverCall{}) {
			t.Errorf("it still does %+v", got)
		}
		w.metric("storage_operation_duration_seconds", 1) // it was not tried to be mounted while it was waited for
	})
}

// labelled checks a label of all series of a family.
func (w *world) labelled(family, label, want string) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == family && l.GetName() == label && l.GetValue() != want {
					w.t.Errorf("%s has %s=%q, want %q", family, label, l.GetValue(), want)
				}
			}
		}
	}
}
