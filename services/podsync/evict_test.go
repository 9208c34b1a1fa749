package podsync

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// evict asks podsync as gc does.
func (b *bed) evict(e topic.Eviction) (topic.EvictionReply, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	return topic.PodEvict.Do(ctx, b.others, e)
}

func eviction(name, uid string, grace int64) topic.Eviction {
	return topic.Eviction{
		Ref: topic.Ref{Namespace: "default", Name: name, UID: uid}, Reason: "Evicted",
		Message:    "The node was low on resource: memory. ",
		Disruption: corev1.PodReasonTerminationByKubelet, GracePeriodSeconds: &grace,
	}
}

func TestAnEvictedPodFailsWithItsReason(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("hog", "u1"), pod("meek", "u2"))
		reply, err := b.evict(eviction("hog", "u1", 1))
		if err != nil || reply.Ending {
			t.Fatalf("%+v, %v; want a pod that was not ending", reply, err)
		}
		b.settle()
		b.wantRunning("meek")
		b.wantFailed("u1", "Evicted")
		s, _ := get(b, topic.StatusPatch, "u1")
		found := false
		for _, c := range s.Status.Conditions {
			found = found || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
				c.Reason == corev1.PodReasonTerminationByKubelet && c.Message == s.Status.Message
		}
		if !found || s.Status.Message != "The node was low on resource: memory. " {
			t.Errorf("message %q, conditions %+v; want the message in both", s.Status.Message, s.Status.Conditions)
		}
		if reply, err := b.evict(eviction("hog", "u1", 1)); err != nil || !reply.Ending || !reply.Ended {
			t.Errorf("%+v, %v; want a pod that has ended", reply, err)
		}
	})
}

// A pod whose volumes can't be attached counts as one that wasn't admitted, once.
func TestAPodWithoutRoomForItsVolumesIsCounted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("full", "u1"))
		for range 2 {
			e := eviction("full", "u1", 1)
			e.Reason = topic.ReasonExhausted
			if _, err := b.evict(e); err != nil {
				t.Fatal(err)
			}
		}
		b.settle()
		b.wantFailed("u1", topic.ReasonExhausted)
		b.metrics(map[string]float64{"admission_rejections_total{reason=" + topic.ReasonExhausted + "}": 1})
	})
}

// What has succeeded isn't failed for a shortage to which it adds nothing.
func TestAPodThatHasEndedIsNotEvicted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		job := pod("job", "u1")
		job.Status.Phase = corev1.PodSucceeded
		b.deliver(fromAPI, job)
		if reply, err := b.evict(eviction("job", "u1", 1)); err != nil || !reply.Ended {
			t.Errorf("%+v, %v; want a pod that has ended", reply, err)
		}
		b.settle()
		if s, _ := get(b, topic.StatusPatch, "u1"); s.Status.Phase != corev1.PodSucceeded || s.Status.Reason != "" {
			t.Errorf("the pod is %s, reason %q; want Succeeded", s.Status.Phase, s.Status.Reason)
		}
	})
}

// A soft threshold gave the pod its time; a hard one that is met meanwhile takes it.
func TestAnEvictionShortensTheGraceOfAnother(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("hog", "u1"))
		list, err := b.client.ListContainers(b.t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d containers, %v", len(list), err)
		}
		b.fake.Stubborn(list[0].GetId())
		for _, grace := range []int64{25, 0} {
			if _, err := b.evict(eviction("hog", "u1", grace)); err != nil {
				t.Fatal(err)
			}
			b.settle()
		}
		b.pass(2 * time.Second)
		b.wantRunning()
		b.wantFailed("u1", "Evicted")
	})
}

func TestNonsenseEvictsNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("meek", "u1"))
		noReason := eviction("meek", "u1", 1)
		noReason.Reason = ""
		for text, c := range map[string]struct {
			eviction topic.Eviction
			kind     error
		}{
			"without a reason": {noReason, bus.ErrInvalid},
			"-5 s":             {eviction("meek", "u1", -5), bus.ErrInvalid},
			"no worker":        {eviction("meek", "u9", 1), bus.ErrNotFound},
			"not default/hog":  {eviction("hog", "u1", 1), bus.ErrNotFound},
		} {
			if _, err := b.evict(c.eviction); err == nil || !strings.Contains(err.Error(), text) || !errors.Is(err, c.kind) {
				t.Errorf("error %v; want one with %q, %v", err, text, c.kind)
			}
		}
		b.settle()
		b.wantRunning("meek")
	})
}
