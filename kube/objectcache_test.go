package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

var key = ObjectKey{Namespace: "ns", Name: "a"}

// caching runs a cache of the collection in a bubble.
func caching(t *testing.T, c *collection, strategy Strategy,
	body func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cache := newObjectCache[corev1.ConfigMap](objectCacheConfig[corev1.ConfigMap]{
			kind: "configmap", strategy: strategy, client: testClient(), get: c.get,
			source: func(k ObjectKey) source { return c.source(k.Name) },
			frozen: func(o *corev1.ConfigMap) bool { return o.Immutable != nil && *o.Immutable },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- cache.Run(ctx) }()
		body(t, cache)
		cancel()
		c.fail(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func value(t *testing.T, cache *ObjectCache[corev1.ConfigMap], want string) {
	t.Helper()
	synctest.Wait()
	o, err := cache.Get(t.Context(), key)
	if err != nil || o.Data["k"] != want {
		t.Errorf("get: %v, %v; want %q", o, err, want)
	}
}

// changed counts the changes that are there.
func changed(cache *ObjectCache[corev1.ConfigMap]) int {
	for n := 0; ; n++ {
		synctest.Wait()
		select {
		case <-cache.Changes():
		default:
			return n
		}
	}
}

func TestAHeldObjectIsFollowed(t *testing.T) {
	c := newCollection()
	c.set("a", "1")
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("pod", key)
		value(t, cache, "1")
		if n := changed(cache); n != 1 {
			t.Errorf("%d changes, want the first state", n)
		}
		c.asked()
		c.set("a", "2")
		value(t, cache, "2")
		if n := changed(cache); n != 1 {
			t.Errorf("%d changes, want 1", n)
		}
		if n := c.asked(); n != 0 {
			t.Errorf("%d requests for what the watch told", n)
		}
		c.remove("a")
		synctest.Wait()
		if _, err := cache.Get(t.Context(), key); !apierrors.IsNotFound(err) {
			t.Errorf("get of a removed one: %v", err)
		}
	})
}

func TestAnObjectThatOnlyTheStoreHasIsFound(t *testing.T) {
	c := newCollection()
	c.set("a", "1")
	c.stale = true
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("pod", key)
		value(t, cache, "1")
	})
}

func TestWhatIsKnownServesDuringAnOutage(t *testing.T) {
	c := newCollection()
	c.set("a", "1")
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("pod", key)
		value(t, cache, "1")
		c.fail(errDown)
		time.Sleep(time.Hour)
		value(t, cache, "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		other := ObjectKey{Namespace: "ns", Name: "other"}
		cache.Hold("pod", key, other)
		if _, err := cache.Get(ctx, other); !errors.Is(err, errDown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("get of an unknown one: %v, want the deadline and its cause", err)
		}
	})
}

func TestARefusalIsReportedAfterSomePatience(t *testing.T) {
	c := newCollection()
	c.set("a", "1")
	refusal := apierrors.NewForbidden(corev1.Resource("configmaps"), "a", errors.New("no relationship"))
	c.err = refusal
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("pod", key)
		began := time.Now()
		if _, err := cache.Get(t.Context(), key); !apierrors.IsForbidden(err) {
			t.Errorf("get: %v, want forbidden", err)
		}
		if took := time.Since(began); took < reflectDelay || took > 5*time.Second {
			t.Errorf("the refusal was reported after %s", took)
		}
		c.fail(nil)
		time.Sleep(2 * reflectDelayMax)
		value(t, cache, "1")
	})
}

func TestAnImmutableObjectIsNotWatched(t *testing.T) {
	c := newCollection()
	yes := true
	c.set("a", "1", func(o *corev1.ConfigMap) { o.Immutable = &yes })
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("pod", key)
		value(t, cache, "1")
		c.fail(nil) // ends a watch, which would be opened again
		c.asked()
		time.Sleep(time.Hour)
		if n := c.asked(); n != 0 {
			t.Errorf("%d requests for an immutable object", n)
		}
		value(t, cache, "1")
	})
}

// An immutable object may be deleted and created again under its name. The next pod gets the new one, and those that
// have the old one hear of it.
func TestAnImmutableObjectIsReadAgainForTheNextPod(t *testing.T) {
	c := newCollection()
	yes := true
	immutable := func(uid string) func(*corev1.ConfigMap) {
		return func(o *corev1.ConfigMap) { o.Immutable, o.UID = &yes, types.UID(uid) }
	}
	c.set("a", "1", immutable("first"))
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("one", key)
		value(t, cache, "1")
		c.remove("a")
		c.set("a", "2", immutable("second"))
		value(t, cache, "1")
		changed(cache)
		cache.Hold("two", key)
		if o, err := cache.Get(t.Context(), key); err != nil || o.Data["k"] != "2" {
			t.Errorf("the second pod gets %v, %v", o, err)
		}
		if n := changed(cache); n != 1 {
			t.Errorf("%d changes, want 1", n)
		}
		c.fail(nil)
		c.asked()
		time.Sleep(time.Hour)
		if n := c.asked(); n != 0 {
			t.Errorf("%d requests for an immutable object", n)
		}
		c.fail(errDown)
		cache.Hold("three", key)
		value(t, cache, "2") // the server is away
		c.fail(nil)
		time.Sleep(2 * reflectDelayMax)
		if n := changed(cache); n != 0 {
			t.Errorf("%d changes of the same object", n)
		}
		value(t, cache, "2")
	})
}

func TestAReleasedObjectLingers(t *testing.T) {
	c := newCollection()
	c.set("a", "1")
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("one", key)
		cache.Hold("two", key)
		value(t, cache, "1")
		c.asked()
		cache.Hold("one")
		time.Sleep(2 * linger)
		value(t, cache, "1")
		cache.Hold("two")
		time.Sleep(linger / 2)
		cache.Hold("three", key)
		time.Sleep(2 * linger)
		value(t, cache, "1")
		if n := c.asked(); n != 0 {
			t.Errorf("%d requests, want the old watch to serve the third pod", n)
		}
		cache.Hold("three")
		time.Sleep(2 * linger)
		c.set("a", "2")
		changed(cache)
		value(t, cache, "2")
		if n := c.asked(); n != 1 {
			t.Errorf("%d requests for an object that nobody holds, want one get", n)
		}
	})
}

// Nobody may ever refer to it again.
func TestAnObjectThatIsImmutableByThenGoesToo(t *testing.T) {
	c := newCollection()
	yes := true
	c.set("a", "1")
	caching(t, c, StrategyWatch, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
		cache.Hold("pod", key)
		value(t, cache, "1")
		cache.Hold("pod")
		c.set("a", "2", func(o *corev1.ConfigMap) { o.Immutable = &yes })
		synctest.Wait()
		time.Sleep(2 * linger)
		cache.mu.Lock()
		defer cache.mu.Unlock()
		if n := len(cache.entries); n != 0 {
			t.Errorf("%d objects are kept that nobody holds", n)
		}
	})
}

func TestStrategiesWithoutAWatch(t *testing.T) {
	for _, strategy := range []Strategy{StrategyCache, StrategyGet} {
		t.Run(string(strategy), func(t *testing.T) {
			c := newCollection()
			c.set("a", "1")
			caching(t, c, strategy, func(t *testing.T, cache *ObjectCache[corev1.ConfigMap]) {
				cache.Hold("pod", key)
				value(t, cache, "1")
				changed(cache)
				c.set("a", "2")
				want := "1"
				if strategy == StrategyGet {
					want = "2"
				}
				value(t, cache, want)
				time.Sleep(reread + time.Second)
				if n := changed(cache); n != 1 {
					t.Errorf("%d changes after a minute, want 1", n)
				}
				value(t, cache, "2")
			})
		})
	}
}
