package podsync

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// No scheduler keeps a static pod away from a node that hasn't what the pod needs.
func TestAStaticPodThatNeedsAFeatureIsRefused(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile)
		b.node(1)
		needs := pod("needs", "u1")
		needs.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
		}}
		b.deliver(fromFile, needs, pod("other", "u2"))
		b.wantRunning("other")
		b.wantFailed("u1", "PodFeatureUnsupported")
		const why = "Pod requires node features that are not available: RestartAllContainersOnContainerExits"
		if e := b.event("PodFeatureUnsupported"); e.Name != "needs" || e.Message != why {
			t.Errorf("Event %+v", e)
		}
		if s, _ := get(b, topic.StatusPatch, "u1"); s.Status.Message != "Pod was rejected: "+why {
			t.Errorf("message %q", s.Status.Message)
		}
	})
}

// Nobody makes a static pod anew that was refused: after a restart it is judged again.
func TestARefusedStaticPodIsJudgedAgainAfterARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromFile)
		b.node(1)
		first, second := pod("first", "u1"), pod("second", "u2")
		b.deliver(fromFile, first, second)
		b.wantRunning("first")
		b.wantFailed("u2", "OutOfpods")
		stop()
		stop = b.start(fromFile)
		b.deliver(fromFile, first, second)
		b.wantRunning("first")
		b.wantFailed("u2", "OutOfpods") // there is no more room than before
		stop()
		b.node(2)
		b.start(fromFile)
		b.deliver(fromFile, first, second)
		b.wantRunning("first", "second")
		if s, _ := get(b, topic.StatusPatch, "u2"); s.Status.Phase != corev1.PodRunning || s.Status.Reason != "" {
			t.Errorf("its status is %s, reason %q", s.Status.Phase, s.Status.Reason)
		}
	})
}

// The pod may be the API server: the corrected manifest can't wait for it.
func TestACorrectedManifestDoesNotWaitForTheAPIServer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromFile, pod("api", "broken"), pod("other", "u1"))
		b.wantRunning("api", "other")
		b.deliver(fromFile, pod("api", "corrected"))
		b.wantRunning("api")
		if _, known := get(b, topic.PodUpdate, "corrected"); !known {
			t.Error("the pod of the corrected manifest has no worker")
		}
		if _, known := get(b, topic.PodUpdate, "broken"); known {
			t.Error("the pod of the manifest before is still there")
		}
	})
}

// Its manifest may be moved away, and back while podsync is stopped: it begins anew when its end is over.
func TestAStaticPodThatComesBackOverARestartStartsAnew(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromFile)
		b.node(110)
		static := pod("proxy", "u1")
		b.deliver(fromFile, static)
		b.stubborn("proxy")
		b.deliver(fromFile)
		b.pass(time.Second)
		stop()
		b.start(fromFile)
		b.deliver(fromFile, static)
		b.pass(time.Minute)
		if p, _ := get(b, topic.PodUpdate, "u1"); p.Lifecycle != topic.Syncing || p.Removed {
			t.Errorf("the pod is %q, removed: %v; want it to sync", p.Lifecycle, p.Removed)
		}
		b.wantRunning("proxy")
		if n := b.fake.Calls("RunPodSandbox"); n != 2 {
			t.Errorf("%d sandboxes, want one for each life", n)
		}
	})
}
