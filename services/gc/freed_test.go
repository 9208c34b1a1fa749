package gc

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
)

// limited gives a pod a volume of at most 200 MiB.
func limited(p *corev1.Pod) {
	data(p)
	p.Spec.Volumes[0].EmptyDir.SizeLimit = resource.NewQuantity(200*mib, resource.BinarySI)
}

// muchAndHog readies the bed with two pods: much breaks its own limit, hog uses most.
func (b *bed) muchAndHog() {
	b.ready()
	b.pod("much", "1Mi", topic.Syncing, limited)
	b.pod("hog", "1Mi", topic.Syncing, data)
	b.usage = map[string]int64{"much": mib, "hog": mib}
	b.volumes = map[string]int64{"much": 300 * mib, "hog": 500 * mib}
}

// A pod that was evicted for its own limit frees what ends a shortage: no other pod is evicted while it ends and its
// space is freed. If it isn't freed, the others' turn comes.
func TestAPodOverItsLimitFreesTheSpace(t *testing.T) {
	for name, c := range map[string]struct {
		short, freed time.Duration
		want         string
	}{
		"short after its eviction":  {time.Second, 30 * time.Second, "30s much grace 1 "},
		"short before its eviction": {-5 * time.Second, 30 * time.Second, "26s much grace 1 "},
		"its space isn't freed": {
			time.Second, time.Hour, "30s much grace 1 , 1m30s hog grace 1 TerminationByKubelet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.muchAndHog()
				b.volumes["much"] = 100 * mib // until later
				b.run(func() {
					b.after(25*time.Second - readEvery/2)
					b.set(func() { b.volumes["much"] = 300 * mib }) // it is measured at 30 s
					b.after(6*time.Second + c.short)
					b.set(func() { b.disk = 50 * mib })
					b.after(4*time.Second - c.short)
					b.released("much")
					b.set(func() { delete(b.volumes, "much") })
					time.AfterFunc(c.freed, func() { b.set(func() { b.disk = 350 * mib }) })
					b.after(70 * time.Second)
					b.want("evictions", b.evictions(), c.want)
				})
			})
		})
	}
}

// Of the pods of a node that is short of disk space those go first that break their own limits, if that is enough.
func TestOwnLimitsComeBeforeTheRanking(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.muchAndHog()
		b.disk = 50 * mib
		b.run(func() {
			b.after(5 * time.Second)
			b.want("evictions", b.evictions(), "0s much grace 1 ")
			b.released("much")
			b.set(func() { b.disk = 350 * mib })
			b.after(time.Minute)
			b.want("evictions", b.evictions(), "0s much grace 1 ")
		})
	})
}

// What was awaited of a pod in an earlier shortage isn't awaited in a later one.
func TestALaterShortageDoesNotWaitForSpace(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing, data)
		b.pod("a", "1Mi", topic.Syncing, data)
		b.usage = map[string]int64{"hog": mib, "a": mib}
		b.volumes = map[string]int64{"hog": 500 * mib, "a": mib}
		b.run(func() {
			b.after(20*time.Second - readEvery/2)
			b.set(func() { b.disk = 50 * mib })
			b.after(2 * time.Second)
			b.set(func() { b.disk = 550 * mib; delete(b.volumes, "hog"); delete(b.usage, "hog") })
			b.after(2 * time.Second)
			b.released("hog")
			b.after(10 * time.Minute)
			b.set(func() { b.disk = 50 * mib })
			b.after(3 * time.Second)
			b.want("evictions", b.evictions(), "20s hog grace 1 TerminationByKubelet, 10m24s a grace 1 TerminationByKubelet")
		})
	})
}

// An eviction whose answer is lost may be under way: podsync is asked for the same pod again, and no other goes while
// that one ends.
func TestAnEvictionWithoutAnAnswer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing)
		b.pod("second", "1Mi", topic.Syncing)
		b.usage, b.memory, b.mute = map[string]int64{"hog": 300 * mib, "second": 50 * mib}, 50*mib, 2
		b.run(func() {
			b.after(time.Second)
			b.pod("hog", "1Mi", topic.Terminating)
			b.set(func() { b.usage["hog"] = mib }) // its processes have ended
			b.after(20 * time.Second)
			b.want("evictions", b.evictions(), "0s hog grace 1 TerminationByKubelet, 2s hog grace 1 TerminationByKubelet, "+
				"4s hog grace 1 TerminationByKubelet")
			b.want("health", b.get(func() string { return b.health }), "healthy")
			b.released("hog")
			b.set(func() { b.memory = 1000 * mib })
			b.after(time.Minute)
		})
		if n := strings.Count(strings.Join(b.events, "\n"), "Pod hog Evicted"); n != 1 {
			t.Errorf("%d Events of the eviction: %q", n, b.events)
		}
		if strings.Contains(b.evictions(), "second") {
			t.Errorf("evictions %s", b.evictions())
		}
	})
}
