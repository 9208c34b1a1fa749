package kube

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is what a reader of a watch knows.
type view struct {
	values map[string]string
	synced int
	seen   int
}

// read takes every change that is there.
func (v *view) read(t *testing.T, changes <-chan Change[corev1.ConfigMap]) {
	t.Helper()
	for {
		synctest.Wait()
		select {
		case c := <-changes:
			switch {
			case c.Synced:
				v.synced++
			case c.Deleted:
				delete(v.values, c.Object.Name)
			default:
				v.seen++
				v.values[c.Object.Name] = c.Object.Data["k"]
				if c.Object.ManagedFields != nil {
					t.Error("managedFields are kept in memory")
				}
			}
		default:
			return
		}
	}
}

func (v *view) want(t *testing.T, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if v.values[name] != value {
			t.Errorf("%s is %q, want %q", name, v.values[name], value)
		}
	}
	if len(v.values) != len(want) {
		t.Errorf("knows %v, want %v", v.values, want)
	}
}

func streaming(t *testing.T, c *collection, body func(t *testing.T, changes <-chan Change[corev1.ConfigMap], v *view)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changes := stream[corev1.ConfigMap](ctx, testClient(), c.source(""), "configmaps")
		body(t, changes, &view{values: map[string]string{}})
		cancel()
		c.fail(nil)
		for range changes {
			continue
		}
	})
}

func TestAWatchDeliversTheSetAndThenItsChanges(t *testing.T) {
	c := newCollection()
	c.set("a", "1")
	streaming(t, c, func(t *testing.T, changes <-chan Change[corev1.ConfigMap], v *view) {
		v.read(t, changes)
		v.want(t, map[string]string{"a": "1"})
		if v.synced != 1 {
			t.Errorf("synced %d times, want once", v.synced)
		}
		c.set("b", "1")
		c.remove("a")
		v.read(t, changes)
		v.want(t, map[string]string{"b": "1"})
	})
}

func TestASlowReaderGetsTheLatestState(t *testing.T) {
	c := newCollection()
	streaming(t, c, func(t *testing.T, changes <-chan Change[corev1.ConfigMap], v *view) {
		v.read(t, changes)
		for i := range 1000 {
			c.set("a", string(rune('0'+i%10)))
			synctest.Wait()
		}
		v.read(t, changes)
		v.want(t, map[string]string{"a": "9"})
		if v.seen > 3 {
			t.Errorf("%d changes were kept for a reader that needs the last", v.seen)
		}
	})
}

func TestAnOutageIsMadeUpFor(t *testing.T) {
	c := newCollection()
	c.set("kept", "1")
	c.set("gone", "1")
	streaming(t, c, func(t *testing.T, changes <-chan Change[corev1.ConfigMap], v *view) {
		v.read(t, changes)
		c.fail(errDown)
		time.Sleep(10 * time.Minute)
		c.remove("gone")
		c.set("new", "1")
		v.read(t, changes)
		v.want(t, map[string]string{"kept": "1", "gone": "1"})
		seen := v.seen
		c.fail(nil)
		time.Sleep(2 * reflectDelayMax)
		v.read(t, changes)
		v.want(t, map[string]string{"kept": "1", "new": "1"})
		if v.seen != seen+1 {
			t.Errorf("%d objects were delivered again, want the new one alone", v.seen-seen)
		}
		if v.synced != 2 {
			t.Errorf("synced %d times, want after each list", v.synced)
		}
	})
}

func TestAServerThatRefusesIsTriedRarely(t *testing.T) {
	c := newCollection()
	c.err = errRefused
	streaming(t, c, func(t *testing.T, changes <-chan Change[corev1.ConfigMap], v *view) {
		if n := c.askedIn(10*time.Minute, time.Minute); n < 60 || n > 130 {
			t.Errorf("%d requests in 10 minutes, want one each 5 to 10 s", n)
		}
		v.read(t, changes)
	})
}

func TestOlder(t *testing.T) {
	at := func(version string) metav1.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	if !Older(at("9"), at("10")) || Older(at("10"), at("9")) || Older(at("9"), at("9")) {
		t.Error("resource versions are compared as texts")
	}
	if !Older(at("none"), at("1")) || Older(at("1"), at("")) {
		t.Error("what is no version must be the oldest")
	}
}
