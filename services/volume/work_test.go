package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/cleanup"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// comeAndGo has pods with volumes come and go, and returns how often the daemon has looked at the time, which it does
// for each pod that it looks at, and for each of its volumes that is worked on.
func comeAndGo(t *testing.T, pods int) (looks int) {
	inWorld(t, func(w *world) {
		w.clock = func() { looks++ }
		w.configMaps.byName["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"key": "1"}}
		w.start()
		w.ready()
		var uids []string
		spec := func(uid string) *corev1.Pod {
			return podSpec(uid, emptyDir("disk", ""), configMap("cm"), labels("meta"))
		}
		for i := range pods {
			uids = append(uids, fmt.Sprintf("u%d", i))
			w.update(spec(uids[i]), topic.Syncing)
		}
		w.ready(uids...)
		w.configMaps.set("cm", &corev1.ConfigMap{Data: map[string]string{"key": "2"}})
		w.advance(time.Minute)
		for i, uid := range uids {
			w.expect(uid, "mounted: cm=mounted disk=mounted meta=mounted")
			if i == 0 {
				w.metric("volume_manager_total_volumes", float64(6*pods))
			}
		}
		for _, uid := range uids {
			w.update(spec(uid), topic.Terminated)
			if err := w.pods.Delete(uid); err != nil {
				t.Fatal(err)
			}
		}
		w.ready()
		w.rest()
		w.metric("volume_manager_total_volumes", 0)
		for _, uid := range uids {
			w.expect(uid, "none")
		}
	})
	return looks
}

// Twice as many pods are twice the work, not four times.
func TestManyPodsAreNoQuadraticWork(t *testing.T) {
	one, two := comeAndGo(t, 50), comeAndGo(t, 100)
	t.Logf("50 pods: %d looks; 100 pods: %d", one, two)
	if one == 0 || two > 5*one/2 {
		t.Errorf("50 pods took %d looks, 100 took %d", one, two)
	}
}

// A pod that waits for its next try, or for a hung worker to be told of, is looked at when that is due, though nothing
// happens, and no pod is while nothing is due.
func TestOnlyWhatIsDueIsLookedAt(t *testing.T) {
	inWorld(t, func(w *world) {
		var looks atomic.Int64
		w.clock = func() { looks.Add(1) }
		w.relisted()
		w.start()
		var uids []string
		for i := range 30 {
			uids = append(uids, fmt.Sprintf("u%d", i))
			w.update(podSpec(uids[i], emptyDir("disk", "")), topic.Syncing)
		}
		w.ready(uids...)
		w.advance(time.Minute)
		looks.Store(0)
		w.advance(time.Hour)
		if n := looks.Load(); n > 0 {
			t.Errorf("%d looks while nothing is due", n)
		}
		w.update(podSpec("late", configMap("cm")), topic.Syncing)
		looks.Store(0)
		w.advance(10 * time.Minute) // a try every two minutes in the end
		if tries, n := len(w.events.all()), looks.Load(); tries < 8 || n > int64(20*tries) {
			t.Errorf("%d looks for %d tries", n, tries)
		}
	})
}

// The numbers start again with each Service of a process, as when the API server's credentials come after the start.
func TestNumbersOfTwoServices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.update(podSpec("u1", emptyDir("disk", "")), topic.Syncing)
		w.ready("u1")
		w.metric("volume_manager_total_volumes", 2)
		w.again()
		w.metric("volume_manager_total_volumes", 2)
	})
}

// refreshed is a kind of volume that wants to be brought up to date, and isn't any more when its pod ends.
type refreshed struct{ mounts *atomic.Int32 }

func (r refreshed) Mount(_ context.Context, request plugin.Request) (plugin.Result, error) {
	if r.mounts.Add(1); request.Ending {
		return plugin.Result{}, plugin.ErrNotMounted
	}
	return plugin.Result{RefreshAt: time.Now().Add(time.Minute)}, nil
}

func (refreshed) Unmount(context.Context, string) error { return nil }

func TestAVolumeIsBroughtUpToDateOnceWhenItsPodEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		var mounts atomic.Int32
		w.kinds = plugin.List{{
			Claims: func(v *corev1.Volume) bool { return v.Name == "tokens" }, Plugin: refreshed{&mounts},
		}}
		w.start()
		p := podSpec("u1", corev1.Volume{Name: "tokens"})
		w.update(p, topic.Syncing)
		w.expect("u1", "mounted: tokens=mounted")
		before := mounts.Load()
		w.update(p, topic.Terminating)
		w.advance(10 * time.Minute)
		if got := mounts.Load() - before; got != 1 {
			t.Errorf("it was asked for %d times while its pod ended, want 1", got)
		}
		w.expect("u1", "mounted: tokens=mounted")
	})
}

// stubborn are volumes of which one is refused and one hangs until the clean-up is given up.
type stubborn struct{ plugin.Plugin }

func (stubborn) Unmount(ctx context.Context, dir string) error {
	switch filepath.Base(dir) {
	case "a-refused":
		return errors.New("no")
	case "b-hangs":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return os.Remove(dir)
}

// A volume that can't be unmounted holds up no other of its kind.
func TestCleanUpGoesOnAfterAFailure(t *testing.T) {
	root := t.TempDir()
	top := filepath.Join(root, plugin.VolumesDir, "kind")
	for _, name := range []string{"a-refused", "b-hangs", "good"} {
		if err := os.MkdirAll(filepath.Join(top, name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	kinds := plugin.List{{Name: "kind", Dir: "kind", Plugin: stubborn{}}}
	// Somebody who gets on is no reason to give up; the one that hangs is, when nobody has got on for long.
	err := cleanup.Pod(ctx, root, kinds, func() { cancel(errors.New("too late")) })
	if err == nil || !strings.Contains(err.Error(), "kind: no") || !strings.Contains(err.Error(), "too late") {
		t.Errorf("got %v", err)
	}
	if left, err := mounts.Names(top); err != nil || !slices.Equal(left, []string{"a-refused", "b-hangs"}) {
		t.Errorf("left are %q, %v", left, err)
	}
}

// A change of the Node's lists is news for volumes that wait to be attached, also for those of which the attacher has
// failed before, and for no others.
func TestTheNodesListsChange(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		onItsWay, unattached, atOnce bool
	}{
		"is being attached":      {true, true, true},
		"couldn't be attached":   {false, true, true},
		"waits for another pod":  {true, false, false},
		"has failed in some way": {false, false, false},
	} {
		v := &volume{onItsWay: c.onItsWay, waiting: waiting{unattached: c.unattached}, problem: "x"}
		v.retry.fail(now, 0)
		p, changed := &pod{volumes: []*volume{v}}, map[*pod]bool{}
		retryFailed(map[string]*pod{"u": p}, changed, true)
		if atOnce := !v.retry.notBefore.After(now); atOnce != c.atOnce || changed[p] != c.atOnce {
			t.Errorf("a volume that %s is tried at once: %v, the pod is looked at: %v", name, atOnce, changed[p])
		}
	}
}

// A plugin that comes while a volume is being tried spares it the pause after the failure.
func TestAPluginThatComesDuringAnAttempt(t *testing.T) {
	now := time.Now()
	v := &volume{op: opMount}
	p := &pod{volumes: []*volume{v}}
	v.retry.begin()
	retryFailed(map[string]*pod{"u": p}, map[*pod]bool{}, false)
	if v.retry.fail(now, 0); v.retry.notBefore.After(now) {
		t.Errorf("the next attempt is in %s", v.retry.notBefore.Sub(now))
	}
	v.retry.begin()
	if v.retry.fail(now, 0); !v.retry.notBefore.After(now) {
		t.Error("there is no pause though nothing came")
	}
}

// What the cluster says of a driver may change while pods have its volumes: they are looked at, and no others are.
func TestADriverThatWantsToPublishAgain(t *testing.T) {
	source := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}
	inline := &volume{phase: topic.VolumeMounted, spec: &corev1.Volume{VolumeSource: source}}
	behind := &volume{phase: topic.VolumeMounted, spec: &corev1.Volume{}, persistent: "pv"}
	timed := &volume{phase: topic.VolumeMounted, spec: &corev1.Volume{VolumeSource: source}}
	timed.result.RefreshAt = time.Now()
	other := &volume{phase: topic.VolumeMounted, spec: &corev1.Volume{}}
	p := &pod{volumes: []*volume{inline, behind, timed, other}}
	for _, onlyAttaching := range []bool{true, false} {
		changed := map[*pod]bool{}
		retryFailed(map[string]*pod{"u": p}, changed, onlyAttaching)
		if inline.dirty == onlyAttaching || behind.dirty == onlyAttaching || changed[p] == onlyAttaching {
			t.Errorf("the Node's lists alone have changed: %v; looked at are the pod's own volume: %v, the claim's: %v",
				onlyAttaching, inline.dirty, behind.dirty)
		}
	}
	if timed.dirty || other.dirty {
		t.Errorf("looked at are one that is due at its time: %v, and one without a driver: %v", timed.dirty, other.dirty)
	}
}
