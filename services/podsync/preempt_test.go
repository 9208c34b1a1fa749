package podsync

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/critest"
)

func TestACriticalPodStartsWhenThePreemptedPodHasEnded(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(1)
		plain, urgent := pod("plain", "u1"), critical(pod("critical", "u2"))
		b.deliver(fromAPI, plain)
		list, err := b.client.ListContainers(b.t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d containers, %v", len(list), err)
		}
		b.fake.Stubborn(list[0].GetId())
		b.deliver(fromAPI, plain, urgent)
		b.pass(20 * time.Second) // of the grace period of 30 s
		b.wantRunning("plain")
		if n := b.sandboxes(); n != 1 {
			t.Errorf("%d sandboxes while the preempted pod still ends, want its own alone", n)
		}
		b.pass(20 * time.Second)
		b.wantRunning("critical")
		b.wantFailed("u1", "Preempting")
	})
}

// A pod that can't be ended must not keep a critical one from its start forever.
func TestACriticalPodWaitsForNoPodThatDoesNotEnd(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(1)
		plain, urgent := pod("plain", "u1"), critical(pod("critical", "u2"))
		b.deliver(fromAPI, plain)
		b.fake.On("StopContainer", critest.Hang)
		b.deliver(fromAPI, plain, urgent)
		b.pass(40 * time.Second)
		b.wantRunning("plain")
		b.pass(10 * time.Second)
		b.wantRunning("critical", "plain")
	})
}

// The status daemon would make mirror pods that the API server has.
func TestMirrorPodsStayStatedUntilTheAPIServerAnswers(t *testing.T) {
	inBubble(t, func(b *bed) {
		mirror := pod("proxy", "m1")
		mirror.Annotations = map[string]string{"kubernetes.io/config.mirror": "u1"}
		stop := b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromFile, pod("proxy", "u1"))
		b.deliver(fromAPI, mirror)
		stop()
		b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromFile, pod("proxy", "u1"))
		if _, stated := get(b, topic.PodMirror, "m1"); !stated {
			t.Error("the mirror pod was taken back before the API server has answered")
		}
		b.deliver(fromAPI)
		if _, stated := get(b, topic.PodMirror, "m1"); stated {
			t.Error("the mirror pod is stated though it is gone")
		}
	})
}
