package apiserver

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/kube"
)

// next waits for a change that ok accepts.
func next[T any](t *testing.T, changes <-chan kube.Change[T], what string, ok func(kube.Change[T]) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case c, open := <-changes:
			if !open {
				t.Fatalf("the watch ended before %s", what)
			}
			if ok(c) {
				return
			}
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func TestPodsOfTheNodeAreWatched(t *testing.T) {
	api, node := admin(t), nodeName(t)
	ns := namespace(t, api)
	before := boundPod(t, api, ns, "before")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := nodeClient(t).WatchPods(ctx, node)
	seen := false
	next(t, changes, "the end of the first list", func(c kube.Change[corev1.Pod]) bool {
		seen = seen || c.Object != nil && c.Object.UID == before.UID
		return c.Synced
	})
	if !seen {
		t.Error("a pod that existed was not listed")
	}
	after := boundPod(t, api, ns, "after")
	next(t, changes, "a new pod", func(c kube.Change[corev1.Pod]) bool {
		return c.Object != nil && c.Object.UID == after.UID && c.Object.ManagedFields == nil
	})
	now := int64(0)
	if err := api.CoreV1().Pods(ns).Delete(ctx, "after", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	next(t, changes, "the pod's removal", func(c kube.Change[corev1.Pod]) bool {
		return c.Deleted && c.Object.UID == after.UID
	})
	cancel()
	for range changes {
		continue
	}
}

func TestServicesAndRuntimeClassesAreWatched(t *testing.T) {
	c := nodeClient(t)
	next(t, c.WatchServices(t.Context()), "the kubernetes service", func(c kube.Change[corev1.Service]) bool {
		return c.Object != nil && c.Object.Name == "kubernetes"
	})
	synced := false
	for c := range c.WatchRuntimeClasses(t.Context()) {
		if synced = c.Synced; synced {
			break
		}
	}
	if !synced {
		t.Error("RuntimeClasses can't be listed")
	}
}

// refer makes a ConfigMap volume.
func refer(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		}})
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}
}

func TestConfigMapsAreReadAndFollowed(t *testing.T) {
	api := admin(t)
	ns := namespace(t, api)
	ctx, cancel := context.WithCancel(t.Context())
	cache := nodeClient(t).ConfigMaps(kube.StrategyWatch)
	done := make(chan error)
	go func() { done <- cache.Run(ctx) }()

	maps := api.CoreV1().ConfigMaps(ns)
	if _, err := maps.Create(ctx, configMap("c", "1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	boundPod(t, api, ns, "p", refer("c"), refer("absent"))
	key := kube.ObjectKey{Namespace: ns, Name: "c"}
	absent := kube.ObjectKey{Namespace: ns, Name: "absent"}
	began := time.Now()
	cache.Hold("p", key, absent)
	var got *corev1.ConfigMap
	var err error
	// The authorizer learns of the pod in its own time.
	eventually(t, "the first get to be allowed", func() bool {
		got, err = cache.Get(ctx, key)
		return !apierrors.IsForbidden(err)
	})
	if err != nil || got.Data["k"] != "1" {
		t.Fatalf("get: %v, %v", got, err)
	}
	t.Logf("first get in %s", time.Since(began))
	if _, err := cache.Get(ctx, absent); !apierrors.IsNotFound(err) {
		t.Errorf("get of an absent one: %v, want not found", err)
	}

	change := func(what string, want kube.ObjectKey) {
		t.Helper()
		deadline := time.After(patience)
		for {
			select {
			case k := <-cache.Changes():
				if k == want {
					return
				}
			case <-deadline:
				t.Fatalf("timed out waiting for %s", what)
			}
		}
	}
	change("the first state", key)
	began = time.Now()
	if _, err := maps.Update(ctx, configMap("c", "2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	change("an update", key)
	t.Logf("update seen after %s", time.Since(began))
	if got, err = cache.Get(ctx, key); err != nil || got.Data["k"] != "2" {
		t.Errorf("after the update: %v, %v", got, err)
	}
	if _, err := maps.Create(ctx, configMap("absent", "new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	change("one that appears", absent)
	if got, err = cache.Get(ctx, absent); err != nil || got.Data["k"] != "new" {
		t.Errorf("the one that appeared: %v, %v", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestASecretOfAnotherNodesPodIsRefused(t *testing.T) {
	api := admin(t)
	ns := namespace(t, api)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cache := nodeClient(t).Secrets(kube.StrategyWatch)
	go func() { _ = cache.Run(ctx) }()
	if _, err := api.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	key := kube.ObjectKey{Namespace: ns, Name: "s"}
	cache.Hold("p", key)
	if _, err := cache.Get(ctx, key); !apierrors.IsForbidden(err) {
		t.Errorf("get: %v, want forbidden", err)
	}
}

func TestTokensOfAPodsServiceAccount(t *testing.T) {
	api := admin(t)
	ns := namespace(t, api)
	p := boundPod(t, api, ns, "p")
	hour := int64(3600)
	client := nodeClient(t)
	var token *authenticationv1.TokenRequest
	var err error
	// The authorizer learns of the pod in its own time.
	eventually(t, "the token to be allowed", func() bool {
		token, err = client.CreateToken(t.Context(), ns, "default",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: &hour,
				BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
			}})
		return !apierrors.IsForbidden(err)
	})
	if err != nil || token.Status.Token == "" {
		t.Errorf("token %v, %v", token, err)
	}
}
