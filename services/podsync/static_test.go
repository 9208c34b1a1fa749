package podsync

import (
	"context"
	"errors"
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

// The pod may be the API server. Its successor waits for what the two can't have both, not for the runtime to clear up.
func TestACorrectedManifestDoesNotWaitForTheRemovalOfWhatIsLeft(t *testing.T) {
	inBubble(t, func(b *bed) {
		stuck := true
		b.fake.On("RemovePodSandbox", func(context.Context, any) error {
			if stuck {
				return errors.New("device or resource busy")
			}
			return nil
		})
		stop := b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromFile, pod("api", "first"))
		b.deliver(fromFile, pod("api", "second"))
		b.wantRunning("api")
		if p, _ := get(b, topic.PodUpdate, "first"); !p.Released {
			t.Errorf("the first pod is %q, released: %v; want it to be there still", p.Lifecycle, p.Released)
		}
		stop()
		b.start(fromAPI, fromFile)
		b.deliver(fromFile, pod("api", "third"))
		b.wantRunning("api")
		if p, _ := get(b, topic.PodUpdate, "third"); p.Lifecycle != topic.Syncing {
			t.Errorf("the third pod is %q after a restart", p.Lifecycle)
		}
		stuck = false
		b.deliver(fromAPI)
		b.pass(15 * time.Minute)
		b.wantRunning("api")
		if n := b.sandboxes(); n != 1 {
			t.Errorf("%d sandboxes are left in the end, want that of the third pod", n)
		}
	})
}

// An edit of a manifest ends no pod of others: nobody gets the place of the pod that is replaced but its successor.
func TestTheSuccessorOfAStaticPodHasItsPlace(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI, fromFile)
		b.node(110)
		first, web := asking(pod("api", "first"), "1500m", 1), asking(pod("web", "u1"), "500m", 1)
		b.deliver(fromFile, first)
		b.deliver(fromAPI, web)
		b.wantRunning("api", "web")
		web = asking(web, "1", 2)
		b.deliver(fromAPI, web)
		b.stubborn("api")
		second := asking(pod("api", "second"), "1500m", 1)
		second.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		b.deliver(fromFile, second)
		b.pass(time.Minute)
		b.wantRunning("api", "web")
		if held, pending := b.resizeOf("u1"); held != "500m" || pending == nil {
			t.Errorf("the other pod has %s, its resize is %v; want it deferred still", held, pending)
		}
	})
}

// A renamed manifest is another pod, which gets what the one before had, once that has ended.
func TestARenamedStaticPodGetsThePortOfTheOneBefore(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile)
		b.node(110)
		with := func(name string) *corev1.Pod {
			p := pod(name, name)
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
			return p
		}
		b.deliver(fromFile, with("haproxy"))
		b.wantRunning("haproxy")
		b.stubborn("haproxy")
		b.deliver(fromFile, with("kube-vip"))
		b.wantRunning("haproxy")
		b.pass(time.Minute)
		b.wantRunning("kube-vip")
	})
}

// It waits for the volumes of the pod that it replaces.
func TestACorrectedManifestWaitsForVolumes(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile)
		b.node(110)
		with := func(uid string) *corev1.Pod {
			p := pod("db", uid)
			p.Spec.Volumes = []corev1.Volume{{Name: "data"}}
			return p
		}
		b.deliver(fromFile, with("first"))
		set(b, topic.VolumeState, "first", topic.PodVolumes{Phase: topic.VolumeMounted})
		b.wantRunning("db")
		b.deliver(fromFile, with("second"))
		b.pass(time.Minute)
		b.deliver(fromFile, with("second"), pod("other", "u3"))
		b.wantRunning("other")
		if _, known := get(b, topic.PodUpdate, "second"); known {
			t.Error("the second pod has a worker while the volumes of the first are mounted")
		}
		set(b, topic.VolumeState, "first", topic.PodVolumes{Phase: topic.VolumeUnmounted})
		if _, known := get(b, topic.PodUpdate, "second"); !known {
			t.Error("the second pod has no worker although the first holds nothing")
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
