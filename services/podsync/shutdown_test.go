package podsync

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// shutDown asks podsync to end a pod as gc does when the node shuts down.
func (b *bed) shutDown(name, uid string) {
	b.t.Helper()
	e := eviction(name, uid, 1)
	e.Reason, e.Message = topic.ReasonShutdown, "Pod was terminated in response to imminent node shutdown."
	if _, err := b.evict(e); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
	b.wantFailed(uid, "Terminated")
}

// A node that shuts down takes no pod, and those that run go on until they are asked to end. What it has refused stays
// refused; static pods come back once it is cancelled.
func TestANodeThatShutsDownTakesNoPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromFile, pod("proxy", "s1"))
		b.deliver(fromAPI, pod("first", "u1"))
		b.wantRunning("first", "proxy")
		set(b, topic.NodeShutdown, "", topic.Shutdown{Active: true})
		b.deliver(fromAPI, pod("first", "u1"), pod("late", "u2"))
		b.deliver(fromFile, pod("proxy", "s1"), pod("latestatic", "s2"))
		b.wantRunning("first", "proxy")
		for _, uid := range []string{"u2", "s2"} {
			b.wantFailed(uid, "NodeShutdown")
			s, _ := get(b, topic.StatusPatch, uid)
			if s.Status.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
				t.Errorf("message %q", s.Status.Message)
			}
		}
		if e := b.event("NodeShutdown"); e.Message != "Pod was rejected as the node is shutting down." ||
			e.Type != corev1.EventTypeWarning {
			t.Errorf("Event %+v", e)
		}
		b.shutDown("first", "u1")
		b.shutDown("proxy", "s1")
		b.wantRunning()

		set(b, topic.NodeShutdown, "", topic.Shutdown{Active: false})
		b.settle()
		b.wantRunning("latestatic", "proxy")
		b.deliver(fromAPI, pod("first", "u1"), pod("late", "u2"), pod("next", "u3"))
		b.wantRunning("latestatic", "next", "proxy")
		b.wantFailed("u1", "Terminated")
		b.wantFailed("u2", "NodeShutdown")
	})
}

// podsync may be away while a shutdown is cancelled.
func TestStaticPodsComeBackAfterARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromFile)
		b.node(110)
		b.deliver(fromFile, pod("proxy", "s1"), pod("broken", "s2"))
		set(b, topic.NodeShutdown, "", topic.Shutdown{Active: true})
		b.shutDown("proxy", "s1")
		if _, err := b.evict(eviction("broken", "s2", 1)); err != nil {
			t.Fatal(err)
		}
		b.settle()
		stop()
		stop = b.start(fromFile)
		b.deliver(fromFile, pod("proxy", "s1"), pod("broken", "s2"))
		b.wantRunning() // it shuts down still
		stop()
		set(b, topic.NodeShutdown, "", topic.Shutdown{Active: false})
		b.start(fromFile)
		b.deliver(fromFile, pod("proxy", "s1"), pod("broken", "s2"))
		b.settle()
		b.wantRunning("proxy")
		b.wantFailed("s2", "Evicted")
	})
}
