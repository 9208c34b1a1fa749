package podsync

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/critest"
)

// critical is the pod with the priority of those that the cluster can't do without.
func critical(p *corev1.Pod) *corev1.Pod {
	priority := int32(2000000000)
	p.Spec.Priority = &priority
	return p
}

// What was admitted before a restart counts when a new pod is judged, whatever comes first, and whether or not the bus
// and the runtime have it still.
func TestWhatWasAdmittedCountsAfterARestart(t *testing.T) {
	for name, between := range map[string]func(*bed){
		"it runs": func(*bed) {},
		"it runs, and the bus has lost its state": func(b *bed) { b.bus.LoseState() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				stop := b.start(fromAPI)
				b.node(1)
				b.deliver(fromAPI, pod("old", "u1"))
				stop()
				between(b)
				b.start(fromAPI)
				b.node(1)
				b.deliver(fromAPI, pod("new", "u2"), pod("old", "u1"))
				b.wantRunning("old")
				b.wantFailed("u2", "OutOfpods")
			})
		})
	}
	t.Run("it had no sandbox yet", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			set(b, topic.PodUpdate, "u1", topic.Pod{Pod: pod("old", "u1"), Source: fromAPI, Lifecycle: topic.Syncing})
			b.start(fromAPI)
			b.node(1)
			b.deliver(fromAPI, pod("new", "u2"), pod("old", "u1"))
			b.wantRunning("old")
			b.wantFailed("u2", "OutOfpods")
		})
	})
}

// A source that is late doesn't make its pods' places free.
func TestPodsOfASourceThatIsLateCount(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromFile, pod("static", "u1"))
		stop()
		b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromAPI, pod("new", "u2"))
		b.wantFailed("u2", "OutOfpods")
		b.deliver(fromFile, pod("static", "u1"))
		b.wantRunning("static")
	})
}

// A static pod preempts a pod that the API server has not delivered yet: it may be the API server itself.
func TestAStaticPodPreemptsAPodOfASourceThatIsLate(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromAPI, pod("plain", "u1"))
		b.stubborn("plain")
		stop()
		b.start(fromAPI, fromFile)
		b.node(1)
		static := pod("static", "u2")
		static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		b.deliver(fromFile, static)
		b.pass(20 * time.Second) // of the grace period of 30 s
		b.wantRunning("plain")
		b.pass(20 * time.Second)
		b.wantRunning("static")
		b.wantFailed("u1", "Preempting")
		b.deliver(fromAPI, pod("plain", "u1"))
		b.wantRunning("static")
	})
}

// A critical pod preempts one that was admitted before the restart, has no sandbox yet and comes later in the list. It
// isn't begun with a second time.
func TestAPodIsPreemptedBeforeItsTurn(t *testing.T) {
	inBubble(t, func(b *bed) {
		set(b, topic.PodUpdate, "u1", topic.Pod{Pod: pod("plain", "u1"), Source: fromAPI, Lifecycle: topic.Syncing})
		b.start(fromAPI)
		b.node(1)
		urgent := critical(pod("critical", "u2"))
		b.deliver(fromAPI, urgent, pod("plain", "u1"))
		b.pass(time.Minute)
		b.wantRunning("critical")
		b.wantFailed("u1", "Preempting")
		b.deliver(fromAPI, urgent)
		b.pass(time.Minute)
		b.wantRunning("critical")
	})
}

// Under another name a static pod has the place of the one that its source had before the restart.
func TestAStaticPodUnderAnotherNameIsAdmitted(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromAPI)
		b.deliver(fromFile, pod("before", "u1"))
		stop()
		b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromFile, pod("after", "u2"))
		b.deliver(fromAPI)
		b.pass(time.Minute)
		b.wantRunning("after")
	})
}

// A pod that is gone and comes again before every source has delivered begins anew, whatever the bus had of it.
func TestAPodThatComesAgainBeforeASourceDeliversIsJudged(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromFile, pod("static", "u1"))
		stop()
		b.start(fromAPI, fromFile)
		b.node(1)
		b.deliver(fromFile, pod("static", "u1"))
		b.deliver(fromFile)
		b.deliver(fromFile, pod("next", "u2"), pod("static", "u1"))
		b.wantRunning("next")
		b.wantFailed("u1", "OutOfpods")
	})
}

// An evicted pod holds what it has until its containers have ended, and so does one that others have declared ended.
func TestAPodThatEndsHoldsItsPlace(t *testing.T) {
	failed := func(p *corev1.Pod) *corev1.Pod {
		p = p.DeepCopy()
		p.ResourceVersion, p.Status.Phase = "2", corev1.PodFailed
		return p
	}
	for name, end := range map[string]func(b *bed, p *corev1.Pod, again func()) *corev1.Pod{
		"evicted": func(b *bed, p *corev1.Pod, _ func()) *corev1.Pod {
			if _, err := topic.PodEvict.Do(b.t.Context(), b.others, topic.Eviction{
				Ref: topic.RefOf(p), Reason: "Evicted", Message: "low on memory",
			}); err != nil {
				b.t.Fatal(err)
			}
			return p
		},
		"declared ended": func(_ *bed, p *corev1.Pod, _ func()) *corev1.Pod { return failed(p) },
		"declared ended before a restart": func(_ *bed, p *corev1.Pod, again func()) *corev1.Pod {
			again()
			return failed(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				stop := b.start(fromAPI)
				b.node(1)
				p := pod("plain", "u1")
				b.deliver(fromAPI, p)
				b.stubborn("plain")
				p = end(b, p, func() {
					stop()
					b.start(fromAPI)
					b.node(1)
				})
				b.deliver(fromAPI, p)
				b.deliver(fromAPI, p, pod("new", "u2"))
				b.wantRunning("plain")
				b.wantFailed("u2", "OutOfpods")
				b.pass(40 * time.Second)
				b.deliver(fromAPI, p, pod("next", "u3"))
				b.wantRunning("next")
			})
		})
	}
}

// preemptedBeforeARestart has a critical pod preempt a plain one that ignores SIGTERM, on a node for one, and starts
// podsync again meanwhile.
func (b *bed) preemptedBeforeARestart() (plain, urgent *corev1.Pod) {
	stop := b.start(fromAPI)
	b.node(1)
	plain, urgent = pod("plain", "u1"), critical(pod("critical", "u2"))
	b.deliver(fromAPI, plain)
	b.stubborn("plain")
	b.deliver(fromAPI, plain, urgent)
	stop()
	b.start(fromAPI)
	return plain, urgent
}

// The wait for preempted pods outlives a restart, and others that come have to wait with the critical pod.
func TestACriticalPodWaitsForThePreemptedOneAcrossARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		plain, urgent := b.preemptedBeforeARestart()
		b.node(1)
		b.deliver(fromAPI, urgent, plain)
		b.pass(10 * time.Second)
		b.wantRunning("plain")
		b.pass(30 * time.Second)
		b.wantRunning("critical")
		b.wantFailed("u1", "Preempting")
	})
}

// The preempted pod leaves more than the critical one takes. Who gets the rest waits too.
func TestWhoGetsTheRestOfAPreemptedPodWaits(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		plain, urgent := requesting(pod("plain", "u1"), "1900m"), critical(requesting(pod("critical", "u2"), "1"))
		other := requesting(pod("other", "u3"), "900m")
		b.deliver(fromAPI, plain)
		b.stubborn("plain")
		b.deliver(fromAPI, plain, urgent)
		b.deliver(fromAPI, plain, urgent, other)
		b.pass(10 * time.Second)
		b.wantRunning("plain")
		b.pass(30 * time.Second)
		b.wantRunning("critical", "other")
	})
}

// A resize that preempts is done when the preempted pod has ended, or doesn't end; the kubelet waits for that too.
func TestAResizeWaitsForThePreemptedPod(t *testing.T) {
	for name, c := range map[string]struct {
		hangs, restarts bool
	}{"it ends": {}, "it doesn't end": {hangs: true}, "podsync restarts meanwhile": {restarts: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				stop := b.start(fromAPI)
				b.node(110)
				plain := requesting(pod("plain", "u1"), "1")
				b.deliver(fromAPI, plain)
				b.stubborn("plain")
				if c.hangs {
					b.fake.On("StopContainer", critest.Hang)
				}
				urgent := critical(asking(pod("critical", "u2"), "1", 1))
				b.deliver(fromAPI, plain, urgent)
				urgent = asking(urgent, "1500m", 2)
				b.deliver(fromAPI, plain, urgent)
				if c.restarts {
					stop()
					b.start(fromAPI)
					b.node(110)
					b.deliver(fromAPI, urgent, plain)
				}
				b.pass(20 * time.Second) // of the grace period of 30 s
				b.wantRunning("critical", "plain")
				if n := b.fake.Calls("UpdateContainerResources"); n != 0 {
					t.Errorf("%d resizes while the preempted pod still ends, want none", n)
				}
				b.pass(30 * time.Second)
				if n := b.fake.Calls("UpdateContainerResources"); n != 1 {
					t.Errorf("%d resizes after the wait for the preempted pod, want one", n)
				}
				if held, pending := b.resizeOf("u2"); held != "1500m" || pending != nil {
					t.Errorf("holds %s, condition %+v; want 1500m", held, pending)
				}
				if !c.hangs {
					b.wantFailed("u1", "Preempting")
				}
			})
		})
	}
}
