package gc

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// Who uses most above its request is evicted within two seconds; the next only when that one has ended and memory is
// still short.
func TestEviction(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("good", "500Mi", topic.Syncing)
		b.pod("hog", "10Mi", topic.Syncing)
		b.pod("second", "10Mi", topic.Syncing)
		b.pod("ended", "10Mi", topic.Terminated)
		b.usage = map[string]int64{"good": 400 * mib, "hog": 300 * mib, "second": 50 * mib, "ended": 900 * mib}
		b.run(func() {
			b.after(20 * time.Second)
			b.want("evictions while all is well", b.evictions(), "")
			b.set(func() { b.memory = 50 * mib })
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "20s hog grace 1 TerminationByKubelet")
			if p := b.pressure(); !p.Memory || p.Disk ||
				!strings.Contains(p.Message, "memory.available is 50Mi, hard threshold 100Mi") {
				t.Errorf("pressure %+v", p)
			}
			if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "; b.message != want {
				t.Errorf("message %q, want %q", b.message, want)
			}
			for _, want := range []string{"Node n EvictionThresholdMet", "Pod hog Evicted"} {
				if !slices.Contains(b.events, want) {
					t.Errorf("Events %q lack %s", b.events, want)
				}
			}
			// It takes its time to end.
			b.after(10 * time.Second)
			b.want("evictions while the pod ends", b.evictions(), "20s hog grace 1 TerminationByKubelet")
			// Its volumes take their time.
			b.pod("hog", "10Mi", topic.Terminated)
			b.after(2 * time.Second)
			b.want("evictions before its volumes are gone", b.evictions(), "20s hog grace 1 TerminationByKubelet")
			b.released("hog")
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "20s hog grace 1 TerminationByKubelet, 35s second grace 1 TerminationByKubelet")
			b.set(func() { b.memory = 1000 * mib })
			// One that doesn't end is waited for no longer than half a minute, and nobody else is evicted without need.
			b.after(50 * time.Second)
			if p := b.pressure(); !p.Memory {
				t.Error("the condition ends before its transition period")
			}
			b.after(15 * time.Second)
			if p := b.pressure(); p.Memory || p.Message != "" {
				t.Errorf("pressure %+v", p)
			}
			b.want("evictions in the end", b.evictions(), "20s hog grace 1 TerminationByKubelet, 35s second grace 1 "+
				"TerminationByKubelet")
		})
	})
}

// Without statistics nobody is evicted; a pod that podsync refuses to evict makes way for the next.
func TestEvictionFails(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("refused", "10Mi", topic.Syncing)
		b.pod("hog", "10Mi", topic.Syncing)
		b.usage = map[string]int64{"refused": 400 * mib, "hog": 300 * mib}
		b.memory, b.deaf = 50*mib, true
		b.run(func() {
			b.after(5 * time.Second)
			b.want("evictions without statistics", b.evictions(), "")
			if health := b.get(func() string { return b.health }); !strings.Contains(health, "stats is deaf") {
				t.Errorf("health %q", health)
			}
			b.set(func() { b.deaf = false })
			b.after(11 * time.Second)
			b.want("evictions", b.evictions(), "10s hog grace 1 TerminationByKubelet")
		})
	})
}

// Where podsync can't decide, the next pod isn't evicted in place of the one that is due.
func TestEvictionWaitsForPodsync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("stopping", "10Mi", topic.Syncing)
		b.pod("hog", "10Mi", topic.Syncing)
		b.usage = map[string]int64{"stopping": 400 * mib, "hog": 300 * mib}
		b.memory = 50 * mib
		b.run(func() {
			b.after(time.Minute)
			b.want("evictions", b.evictions(), "")
			if health := b.get(func() string { return b.health }); !strings.Contains(health, "podsync is stopping") {
				t.Errorf("health %q", health)
			}
		})
	})
}

// The condition outlives a restart, by what is left of its transition period.
func TestPressureOverARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.memory = 50 * mib
		b.run(func() {
			b.after(5 * time.Second)
			b.set(func() { b.memory = 1000 * mib })
			b.after(20 * time.Second)
		})
		before := b.pressure()
		b.run(func() {
			b.after(time.Second)
			if p := b.pressure(); !p.Memory || !p.Since.Equal(before.Since) {
				t.Errorf("pressure after the restart %+v, before it %+v", p, before)
			}
			b.after(38 * time.Second)
			if !b.pressure().Memory {
				t.Error("the condition ends too early")
			}
			b.after(5 * time.Second)
			if b.pressure().Memory {
				t.Error("the condition doesn't end")
			}
		})
	})
}

// Who has most processes is evicted, whatever its name.
func TestPIDPressure(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.config.Kubelet.EvictionHard["pid.available"] = "100"
		b.ready()
		b.pod("a", "10Mi", topic.Syncing)
		b.pod("bomb", "10Mi", topic.Syncing)
		b.usage, b.tasks = map[string]int64{"a": mib, "bomb": mib}, map[string]int64{"a": 2, "bomb": 5000}
		b.pids = 50
		b.run(func() {
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "0s bomb grace 1 TerminationByKubelet")
			if !b.pressure().PID {
				t.Errorf("pressure %+v", b.pressure())
			}
		})
	})
}

// long is the grace period of the pods that a soft threshold meets.
func long(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(120)) }

// soft readies the bed with a soft threshold, and with two pods of which hog goes first.
func (b *bed) soft(maxGrace int32) {
	k := &b.config.Kubelet
	k.EvictionSoft, k.EvictionSoftGracePeriod = map[string]string{"memory.available": "500Mi"},
		map[string]string{"memory.available": "10s"}
	k.EvictionMaxPodGracePeriod = maxGrace
	b.ready()
	b.pod("hog", "1Mi", topic.Syncing, long)
	b.pod("second", "1Mi", topic.Syncing, long)
	b.usage = map[string]int64{"hog": 100 * mib, "second": 50 * mib}
}

// softlyEvicted has hog evicted for the soft threshold and end.
func (b *bed) softlyEvicted() {
	b.after(5250 * time.Millisecond)
	b.set(func() { b.memory = 400 * mib })
	b.after(12 * time.Second)
	b.pod("hog", "1Mi", topic.Terminating, long)
}

// A pod that has a long grace period is given it before the next goes, which a negative bound of the configuration
// leaves alone.
func TestSoftThreshold(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.soft(-1)
		b.run(func() {
			b.softlyEvicted()
			b.after(2 * time.Minute)
			b.want("evictions", b.evictions(), "15s hog grace 120 TerminationByKubelet")
			b.after(40 * time.Second)
			b.want("evictions", b.evictions(), "15s hog grace 120 TerminationByKubelet, 2m46s second grace 120 "+
				"TerminationByKubelet")
		})
	})
}

// An eviction of which podsync knows nothing any more is asked for again; a pod that has ended makes way for the next.
func TestAnEvictionThatIsLost(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing)
		b.pod("over", "1Mi", topic.Syncing)
		b.usage = map[string]int64{"hog": 100 * mib, "over": 200 * mib}
		b.run(func() {
			b.after(5250 * time.Millisecond)
			b.set(func() { b.memory = 50 * mib })
			b.after(35 * time.Second)
			b.want("evictions", b.evictions(), "5s hog grace 1 TerminationByKubelet, 37s hog grace 1 TerminationByKubelet")
			b.want("health", b.get(func() string { return b.health }), "healthy")
		})
	})
}

// What has passed while the figures were read evicts nobody, and a failure of a relief is over with the shortage.
func TestAShortageThatPasses(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing)
		b.usage, b.deaf = map[string]int64{"hog": 100 * mib}, true
		b.run(func() {
			b.after(10 * time.Second)
			b.set(func() { b.memory = 50 * mib })
			b.after(5 * time.Second)
			if health := b.get(func() string { return b.health }); !strings.Contains(health, "stats is deaf") {
				t.Errorf("health %q", health)
			}
			b.set(func() { b.memory, b.deaf = 1000*mib, false })
			b.after(time.Second)
			b.want("health", b.get(func() string { return b.health }), "healthy")
			b.set(func() { b.memory, b.think = 50*mib, 3*time.Second })
			b.after(2 * time.Second)
			b.set(func() { b.memory = 1000 * mib })
			b.after(10 * time.Second)
			b.want("evictions", b.evictions(), "")
		})
	})
}

// A hard threshold doesn't wait until a pod has had the time that a soft one has given it: that pod is ended now, and
// nobody else.
func TestAHardThresholdBehindASoftOne(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.soft(300)
		b.run(func() {
			b.softlyEvicted()
			b.after(10 * time.Second)
			b.set(func() { b.memory = 50 * mib })
			b.after(20 * time.Second)
			b.want("evictions", b.evictions(), "15s hog grace 120 TerminationByKubelet, 27s hog grace 1 TerminationByKubelet")
			b.released("hog")
			b.after(2 * time.Second)
			if got := b.evictions(); !strings.HasSuffix(got, "s second grace 1 TerminationByKubelet") {
				t.Errorf("evictions %q once it has ended", got)
			}
		})
	})
}
