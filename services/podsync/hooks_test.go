package podsync

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hooked is a pod whose postStart hook takes an hour.
func hooked(uid string) *corev1.Pod {
	p := pod("hooked", uid)
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
		Sleep: &corev1.SleepAction{Seconds: 3600},
	}}
	return p
}

// graces records the grace periods with which containers are stopped.
func (b *bed) graces() func() []time.Duration {
	var mu sync.Mutex
	var list []time.Duration
	b.fake.On("StopContainer", func(_ context.Context, req any) error {
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		list = append(list, time.Duration(req.(*runtimeapi.StopContainerRequest).GetTimeout())*time.Second)
		return nil
	})
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

func TestTheEndOfPodsyncIsNoFailureOfAHook(t *testing.T) {
	inBubble(t, func(b *bed) {
		graces := b.graces()
		stop := b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, hooked("u1"))
		b.wantRunning("hooked")
		stop()
		if len(graces()) > 0 {
			t.Error("podsync stopped a container whose postStart hook ran when podsync ended")
		}
		b.wantRunning("hooked")
	})
}

func TestAPodThatIsDeletedDuringAHookKeepsItsGracePeriod(t *testing.T) {
	inBubble(t, func(b *bed) {
		graces := b.graces()
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, hooked("u1"))
		b.deliver(fromAPI, deletedWithin(hooked("u1"), 5))
		b.wantRunning()
		if got := graces(); len(got) != 1 || got[0] > 5*time.Second {
			t.Errorf("the container was stopped within %v, want once within 5s", got)
		}
		if e := b.event("FailedPostStartHook"); e.Reason != "" {
			t.Error("a hook that was broken off is no failed hook")
		}
	})
}
