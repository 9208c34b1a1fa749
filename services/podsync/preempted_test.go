package podsync

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/critest"
	"kubelot.dev/services/podsync/internal/admission"
)

// A preempted pod is ended after a restart too while its source is away, here the API server.
func TestAPreemptedPodEndsWhileItsSourceIsAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		plain, urgent := b.preemptedBeforeARestart()
		b.pass(10 * time.Second) // of the grace period of 30 s
		b.wantRunning("plain")
		b.pass(30 * time.Second)
		b.wantRunning()
		b.wantFailed("u1", "Preempting")
		b.deliver(fromAPI, plain, urgent)
		b.wantRunning("critical")
		b.wantFailed("u1", "Preempting")
	})
}

// However often podsync restarts, a pod that can't be ended keeps a critical one from its start no longer than without
// that: for its grace period of 30 s and half of that again.
func TestRestartsDoNotProlongTheWaitForAPreemptedPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(1)
		plain, urgent := pod("plain", "u1"), critical(pod("critical", "u2"))
		b.deliver(fromAPI, plain)
		b.fake.On("StopContainer", critest.Hang)
		preempted := time.Now()
		b.deliver(fromAPI, plain, urgent)
		for time.Since(preempted) < 35*time.Second {
			stop() // what is under way has 5 s
			stop = b.start(fromAPI)
			b.deliver(fromAPI, plain, urgent)
		}
		b.wantRunning("plain")
		b.pass(50*time.Second - time.Since(preempted))
		b.wantRunning("critical", "plain")
		for range 2 { // nor is the critical pod ended, or put off, afterwards
			stop()
			stop = b.start(fromAPI)
			b.deliver(fromAPI, plain, urgent)
			b.wantRunning("critical", "plain")
		}
	})
}

// A static pod comes back before the source of the pod that it has preempted, and waits for its end all the same.
func TestAStaticPodWaitsForThePodThatItPreemptedBeforeARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI, fromFile)
		b.node(1)
		static := pod("static", "u2")
		static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		b.deliver(fromAPI, pod("plain", "u1"))
		b.stubborn("plain")
		b.deliver(fromFile, static)
		stop()
		b.start(fromAPI, fromFile)
		b.deliver(fromFile, static)
		b.pass(10 * time.Second)
		b.wantRunning("plain")
		if n := b.sandboxes(); n != 1 {
			t.Errorf("%d sandboxes while the preempted pod still ends, want its own alone", n)
		}
		b.pass(30 * time.Second)
		b.wantRunning("static")
		b.wantFailed("u1", "Preempting")
	})
}

// podsync may be killed when it has written the status of a preempted pod, and not yet that the pod ends.
func TestAPreemptedPodEndsThoughTheBusHasItAsSyncing(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("plain", "u1"), pod("other", "u2"))
		stop()
		s, _ := get(b, topic.StatusPatch, "u1")
		s.Status.Reason, s.Status.Message = admission.ReasonPreempting, admission.MessagePreempting
		set(b, topic.StatusPatch, "u1", s)
		b.start(fromAPI)
		b.settle()
		b.wantRunning("other")
		b.wantFailed("u1", "Preempting")
	})
}

// What others did for a pod that had begun to end stays known: its claims of devices are given back last.
func TestAPodThatIsTakenUpHasItsDevicesStill(t *testing.T) {
	inBubble(t, func(b *bed) {
		before := topic.Pod{Pod: pod("plain", "u1"), Source: fromAPI, Lifecycle: topic.Syncing, Allocates: true}
		set(b, topic.PodUpdate, "u1", before)
		status := topic.PodStatus{Ref: topic.RefOf(before.Pod)}
		status.Status.Reason, status.Status.Message = admission.ReasonPreempting, admission.MessagePreempting
		set(b, topic.StatusPatch, "u1", status)
		b.start(fromAPI)
		b.node(1)
		if now, _ := get(b, topic.PodUpdate, "u1"); now.Lifecycle == topic.Syncing || !now.Allocates {
			t.Errorf("the bus has %s, with devices: %v", now.Lifecycle, now.Allocates)
		}
	})
}

// A deleted pod's deadline holds over a restart, and while the API server is away.
func TestADeletedPodEndsInTimeWhileItsSourceIsAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("plain", "u1"), pod("other", "u2"))
		b.stubborn("plain")
		b.deliver(fromAPI, deletedWithin(pod("plain", "u1"), 30), pod("other", "u2"))
		stop()
		b.start(fromAPI)
		b.pass(10 * time.Second)
		b.wantRunning("other", "plain")
		b.pass(30 * time.Second)
		b.wantRunning("other")
	})
}
