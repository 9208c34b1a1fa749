package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func pod(name string, status corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

func newTracker() (*tracker, *watch.FakeWatcher) {
	t := &tracker{reached: map[milestone]time.Time{}, changed: make(chan struct{})}
	return t, watch.NewFake()
}

func TestTrackerNotesTheFirstTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, events := newTracker()
		go seen.follow(events)
		begin := time.Now()
		events.Add(pod("a", corev1.ConditionFalse))
		time.Sleep(time.Second)
		events.Modify(pod("a", corev1.ConditionTrue))
		time.Sleep(time.Second)
		events.Modify(pod("a", corev1.ConditionTrue))
		at, err := seen.await(t.Context(), "a", isReady)
		if err != nil || at.Sub(begin) != time.Second {
			t.Errorf("Ready after %v, error %v; want 1s", at.Sub(begin), err)
		}
		events.Delete(pod("a", corev1.ConditionFalse))
		if _, err := seen.await(t.Context(), "a", isGone); err != nil {
			t.Error(err)
		}
		events.Stop()
	})
}

func TestTrackerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, events := newTracker()
		go seen.follow(events)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("patience ran out"))
		defer cancel()
		_, err := seen.await(ctx, "b", isReady)
		if err == nil || !strings.Contains(err.Error(), "pod b is not Ready: patience ran out") {
			t.Errorf("error %v, want the pod, the state and the cause", err)
		}
		failed := pod("c", corev1.ConditionFalse)
		failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "OutOfpods"
		events.Add(failed)
		if _, err := seen.await(t.Context(), "b", isReady); err == nil || !strings.Contains(err.Error(), "OutOfpods") {
			t.Errorf("error %v, want the failed pod's reason at once", err)
		}
	})
}

// A container that ends with an error because its pod is deleted is no failure of the agent.
func TestTrackerOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, events := newTracker()
		go seen.follow(events)
		failed, now := pod("a", corev1.ConditionFalse), metav1.Now()
		failed.Status.Phase, failed.DeletionTimestamp = corev1.PodFailed, &now
		events.Modify(failed)
		ended := pod("b", corev1.ConditionFalse)
		ended.Status.Phase = corev1.PodSucceeded
		events.Modify(ended)
		if _, err := seen.await(t.Context(), "b", isEnded); err != nil {
			t.Error(err)
		}
		events.Stop()
	})
}
