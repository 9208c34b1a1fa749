package gc

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// ends says that podsync ends the pod, which has so many seconds from now on.
func (b *bed) ends(name string, grace int64, lifecycle topic.Lifecycle) {
	b.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	b.must(b.pods.Set(name, topic.Pod{
		Pod: p, Source: topic.SourceAPI, Lifecycle: lifecycle, GracePeriodSeconds: &grace,
		Deadline: new(time.Now().Add(time.Duration(grace) * time.Second)),
	}))
}

// held says what an earlier process has stated of the node.
func (b *bed) held(p topic.Pressure) {
	b.t.Helper()
	conn := b.bus.Conn("gc")
	defer conn.Close()
	w := topic.NodePressure.Writer(conn)
	b.must(w.Set("", p))
	b.must(w.Flush(b.t.Context()))
}

// short readies the bed with two pods on a node that is short of memory: hog goes first.
func (b *bed) short() {
	b.ready()
	b.pod("hog", "1Mi", topic.Syncing)
	b.pod("second", "1Mi", topic.Syncing)
	b.set(func() { b.memory, b.usage = 50*mib, map[string]int64{"hog": 300 * mib, "second": 50 * mib} })
}

// The daemon is killed when it has evicted a pod, and memory is still short when it is started again. It waits for that
// pod's end as if nothing had been: until it is gone, or half a minute after its grace period.
func TestAnEvictionGoesOnOverARestart(t *testing.T) {
	const evicted = "0s hog grace 1 TerminationByKubelet"
	first := func(b *bed) {
		b.run(func() { b.after(2 * time.Second) })
		b.want("evictions before the restart", b.evictions(), evicted)
	}
	for name, c := range map[string]struct {
		before func(*bed)
		want   string // at first
		gone   bool   // it ends after 10 s
		then   string
	}{
		"before the decision is published": {func(b *bed) {
			b.held(topic.Pressure{Memory: true})
			b.ends("hog", 1, topic.Terminating)
		}, "", true, "11s second grace 1 TerminationByKubelet"},
		"after it": {func(b *bed) {
			first(b)
			b.ends("hog", 1, topic.Terminating)
		}, evicted, true, evicted + ", 13s second grace 1 TerminationByKubelet"},
		"when it has ended, and its volumes are there": {func(b *bed) {
			first(b)
			b.ends("hog", 1, topic.Terminated)
		}, evicted, true, evicted + ", 13s second grace 1 TerminationByKubelet"},
		"and it never ends": {func(b *bed) {
			first(b)
			b.ends("hog", 1, topic.Terminating)
		}, evicted, false, evicted + ", 33s second grace 1 TerminationByKubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.short()
				c.before(b)
				b.set(func() { b.usage["hog"] = mib }) // its processes have ended
				b.run(func() {
					b.after(10 * time.Second)
					b.want("evictions while the pod ends", b.evictions(), c.want)
					if c.gone {
						b.released("hog")
					}
					b.after(25 * time.Second)
					b.want("evictions in the end", b.evictions(), c.then)
				})
			})
		})
	}
}

// podsync was started again, and has no workers before the pod sources have delivered. It is asked again soon.
func TestARestartOfPodsyncBeforeAnEviction(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.short()
		b.set(func() { b.empty = time.Now().Add(3 * time.Second) })
		b.run(func() {
			b.after(6 * time.Second)
			b.want("evictions", b.evictions(), "4s hog grace 1 TerminationByKubelet")
		})
	})
}

// The daemon is killed when the pod has gone, before anything was read: what is read after the restart decides.
func TestARestartAfterTheEndOfAnEvictedPod(t *testing.T) {
	for name, c := range map[string]struct {
		memory int64
		want   string
	}{
		"memory is still short": {50 * mib, ", 2s second grace 1 TerminationByKubelet"},
		"memory is free":        {500 * mib, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.short()
				b.run(func() { b.after(2*time.Second - readEvery/4) })
				b.released("hog")
				b.set(func() { b.memory = c.memory })
				b.after(readEvery / 4)
				b.run(func() {
					b.after(10 * time.Second)
					b.want("evictions", b.evictions(), "0s hog grace 1 TerminationByKubelet"+c.want)
					if b.allowed > readEvery {
						t.Errorf("figures may be %s old, which is from before the restart", b.allowed)
					}
				})
			})
		})
	}
}

// What another condition waits for, what has more time than gc gives, and what should have ended long ago doesn't hold
// up an eviction after a restart.
func TestWhatARestartDoesNotWaitFor(t *testing.T) {
	for name, before := range map[string]func(*bed){
		"another condition's": func(b *bed) {
			b.held(topic.Pressure{PID: true})
			b.ends("other", 1, topic.Terminating)
		},
		"one that was deleted": func(b *bed) {
			b.held(topic.Pressure{Memory: true})
			b.ends("other", 30, topic.Terminating)
		},
		"one that hangs": func(b *bed) {
			b.held(topic.Pressure{Memory: true})
			b.ends("other", 1, topic.Terminating)
			b.after(time.Minute)
			b.began = time.Now().Add(readEvery) // it is given up at the first reading
		},
		"none": func(b *bed) { b.held(topic.Pressure{Memory: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.short()
				b.set(func() { b.usage["other"] = mib })
				before(b)
				b.run(func() {
					b.after(2 * time.Second)
					b.want("evictions", b.evictions(), "0s hog grace 1 TerminationByKubelet")
				})
			})
		})
	}
}

// A hard threshold doesn't wait for the time that a soft one has given before the restart.
func TestAHardThresholdAfterARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.soft(300)
		b.run(func() { b.softlyEvicted() })
		b.ends("hog", 120, topic.Terminating)
		b.set(func() { b.memory = 50 * mib })
		b.run(func() {
			b.after(20 * time.Second)
			b.want("evictions", b.evictions(), "15s hog grace 120 TerminationByKubelet, 17s hog grace 1 TerminationByKubelet")
		})
	})
}

// The space of a pod that was evicted before a restart is waited for, as it would be without one: 20 s where nobody
// knows how much it is. This holds where its object has gone too, and where the shortage has begun meanwhile.
func TestSpaceIsWaitedForOverARestart(t *testing.T) {
	released := func(b *bed) { b.released("hog") }
	for name, c := range map[string]struct {
		// fresh is true for a shortage that begins while gc is away, stays for a pod that never ends.
		fresh, stays bool
		gone         func(*bed)
		// again is how long after the first restart another follows, freed when the space is free; zero for never.
		again, freed time.Duration
		want         string
	}{
		"it ends after the restart":         {want: "38s second grace 1 TerminationByKubelet"},
		"it ends, and the shortage is new":  {fresh: true, want: "38s second grace 1 TerminationByKubelet"},
		"it never ends":                     {stays: true, want: "31s second"},
		"nor then, and the shortage is new": {fresh: true, stays: true, want: "31s second"},
		"its space is freed":                {freed: 10 * time.Second},
		"it is freed in a new shortage":     {fresh: true, freed: 10 * time.Second},
		"it has ended before":               {gone: released, want: "20s second"},
		"it has ended, and there again":     {gone: released, again: 5 * time.Second, want: "20s second"},
		"it has gone before": {gone: func(b *bed) {
			b.released("hog")
			b.must(b.pods.Delete("hog"))
		}, want: "20s second grace 1 TerminationByKubelet"},
		"it has ended, and another one hangs": {fresh: true, gone: func(b *bed) {
			b.ends("other", 1, topic.Terminating)
			b.after(time.Minute)
			b.released("hog")
			b.began = time.Now()
		}, want: "20s second"},
		"it has ended, and another one is soon given up": {fresh: true, gone: func(b *bed) {
			b.ends("other", 1, topic.Terminating)
			b.after(28 * time.Second)
			b.released("hog")
			b.began = time.Now()
		}, want: "20s second"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.ready()
				b.pod("second", "1Mi", topic.Syncing, data)
				b.usage, b.volumes = map[string]int64{"second": mib}, map[string]int64{"second": mib}
				b.held(topic.Pressure{Disk: !c.fresh})
				b.disk = 50 * mib
				b.ends("hog", 1, topic.Terminating)
				if c.gone != nil {
					c.gone(b)
				}
				if c.again > 0 {
					b.run(func() { b.after(c.again) })
				}
				b.run(func() {
					b.after(18*time.Second - c.again)
					b.want("evictions at first", b.evictions(), "")
					if c.gone == nil && !c.stays {
						b.released("hog")
					}
					if c.freed > 0 {
						time.AfterFunc(c.freed, func() { b.set(func() { b.disk = 350 * mib }) })
					}
					b.after(30 * time.Second)
					if got := b.evictions(); !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
						t.Errorf("evictions %q, want %q", got, c.want)
					}
				})
			})
		})
	}
}
