package gc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
)

// use is what a pod has in its volume.
type use struct{ bytes, inodes int64 }

// counter counts volumes as stats does: what was counted serves until it is too old for who asks.
type counter struct {
	bed *bed
	// counting is how long it takes until figures are read, answering how long their answer takes then.
	counting, answering time.Duration
	// now is what the pods use, told what was counted last, at that time.
	now, told map[string]use
	at        time.Time
	// uncounted are the pods whose volumes can't be counted.
	uncounted map[string]bool
}

func (c *counter) summary(ctx context.Context, req topic.SummaryRequest) (statsv1alpha1.Summary, error) {
	pause.For(ctx, c.counting)
	c.bed.mu.Lock()
	if c.told == nil || time.Since(c.at) > req.MaxAge {
		c.told, c.at = maps.Clone(c.now), time.Now()
	}
	at := c.at
	if last := req.NotBefore.Add(-time.Second); at.Before(req.NotBefore) && at.After(last) {
		at = last
	}
	var s statsv1alpha1.Summary
	for _, name := range slices.Sorted(maps.Keys(c.told)) {
		p := statsv1alpha1.PodStats{PodRef: statsv1alpha1.PodReference{Name: name, Namespace: "default", UID: name}}
		if !c.uncounted[name] {
			p.VolumeStats = []statsv1alpha1.VolumeStats{{Name: "data", FsStats: statsv1alpha1.FsStats{
				Time: metav1.NewTime(at), UsedBytes: new(uint64(c.told[name].bytes)),
				InodesUsed: new(uint64(c.told[name].inodes)),
			}}}
		}
		s.Pods = append(s.Pods, p)
	}
	c.bed.mu.Unlock()
	pause.For(ctx, c.answering)
	return s, nil
}

// counted readies the bed with three pods: hog has most bytes, files is to have most inodes, modest has a little of
// both.
func (b *bed) counted(c *counter) {
	b.config.Kubelet.EvictionHard["nodefs.inodesFree"] = "5k"
	c.bed, b.stats = b, c.summary
	c.now = map[string]use{"hog": {900 * mib, 10}, "files": {mib, 12}, "modest": {30 * mib, 14}}
	b.ready()
	for name := range c.now {
		b.pod(name, "1Mi", topic.Syncing, data)
	}
}

// The inodes get short right after the figures for the bytes were read: these don't serve for them, however long
// figures take. By them modest had most inodes.
func TestFiguresOfEachShortage(t *testing.T) {
	delays := []time.Duration{0, 300 * time.Millisecond, 1300 * time.Millisecond, 4 * time.Second, 9 * time.Second}
	for _, counting := range delays {
		for _, answering := range delays {
			for _, later := range []time.Duration{0, 400 * time.Millisecond, 1900 * time.Millisecond} {
				if counting+answering >= callTimeout {
					continue // no answer at all
				}
				name := fmt.Sprintf("counted in %s, answered in %s, the inodes %s later", counting, answering, later)
				c := &counter{counting: counting, answering: answering}
				t.Run(name, func(t *testing.T) { inBubble(t, func(b *bed) { b.twoShortages(c, later) }) })
			}
		}
	}
}

func (b *bed) twoShortages(c *counter, later time.Duration) {
	b.counted(c)
	b.run(func() {
		b.after(20*time.Second - readEvery/2)
		b.set(func() { b.disk = 50 * mib })
		for b.evictions() == "" && time.Since(b.began) < time.Minute {
			b.after(50 * time.Millisecond)
		}
		b.after(later)
		b.set(func() { b.inodes, c.now["files"] = 1000, use{mib, 15_000} })
		b.after(100 * time.Millisecond)
		b.set(func() { b.disk = 1000 * mib; delete(c.now, "hog") })
		b.released("hog")
		for strings.Count(b.evictions(), "grace") == 1 && time.Since(b.began) < 2*time.Minute {
			b.after(50 * time.Millisecond)
		}
		b.set(func() { b.inodes = 15_000 })
		b.released("files")
		b.after(time.Minute)
		first, second, _ := strings.Cut(b.evictions(), ", ")
		right := strings.Contains(first, "s hog grace") && strings.Contains(second, "s files grace")
		if !right || strings.Contains(second, ",") {
			b.t.Errorf("evictions %s", b.evictions())
		}
		if strings.Contains(b.message, "missing") {
			b.t.Errorf("message %q", b.message)
		}
	})
}

// Without figures somebody is evicted nevertheless, in a while that is bounded, and told that they were missing: else
// the node would die.
func TestEvictionWithoutFigures(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*bed)
		want  string
	}{
		"stats answers errors": {func(b *bed) { b.deaf = true }, "of the pod itself, default/second. "},
		"stats hangs":          {func(b *bed) { b.think = time.Hour }, "of the pod itself, default/second. "},
		"of one pod":           {func(b *bed) { b.usage = map[string]int64{"second": mib} }, "of the pod itself. "},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.ready()
				for name, request := range map[string]string{"first": "1Mi", "second": "2Mi"} {
					b.pod(name, request, topic.Syncing)
					b.runs(name)
				}
				c.spoil(b)
				b.run(func() {
					b.after(10*time.Second - readEvery/2)
					b.set(func() { b.memory = 50 * mib })
					b.after(20 * time.Second)
					b.want("evictions while figures are waited for", b.evictions(), "")
					b.after(2 * time.Second)
					got := b.evictions()
					if !strings.Contains(got, "s first grace 1") || strings.Contains(got, "second") {
						t.Errorf("evictions %q", got)
					}
					const gap = "Figures from after the shortage began were missing after 2"
					text, missing, _ := strings.Cut(b.message, gap)
					const low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
					if text != low || !strings.HasSuffix(missing, c.want) {
						t.Errorf("message %q", b.message)
					}
					b.released("first")
					b.set(func() { b.memory = 1000 * mib })
					b.after(time.Minute)
				})
			})
		})
	}
}

// What was waited for in vain before a shortage passed says nothing about the next one, which has its own wait.
func TestAWaitEndsWithItsShortage(t *testing.T) {
	inBubble(t, func(b *bed) {
		c := &counter{uncounted: map[string]bool{"hog": true}}
		b.counted(c)
		b.run(func() {
			for _, short := range []bool{true, false, true} {
				b.after(15 * time.Second)
				b.set(func() { b.disk = map[bool]int64{true: 50 * mib, false: 1000 * mib}[short] })
			}
			b.after(15 * time.Second)
			b.want("evictions", b.evictions(), "")
			b.set(func() { c.uncounted = nil })
			b.after(2 * time.Second)
			if got := b.evictions(); !strings.Contains(got, "s hog grace") {
				t.Errorf("evictions %q", got)
			}
		})
	})
}

// A volume that has not been counted yet is waited for, but not for ever.
func TestRankingWaitsForDiskFigures(t *testing.T) {
	for name, c := range map[string]struct {
		counted time.Duration
		want    string
	}{
		"in time": {7 * time.Second, "17s large grace 1"},
		"never":   {time.Hour, "s large grace 1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.ready()
				b.pod("a", "1Mi", topic.Syncing, data)
				b.pod("large", "1Mi", topic.Syncing, data)
				b.usage, b.volumes = map[string]int64{"a": mib, "large": mib}, map[string]int64{"a": mib}
				b.run(func() {
					b.after(10 * time.Second)
					b.set(func() { b.disk = 50 * mib })
					b.after(min(c.counted, 25*time.Second))
					b.set(func() {
						if c.counted < time.Hour {
							b.volumes["large"] = 900 * mib
						}
					})
					b.after(time.Second)
					if got := b.evictions(); !strings.Contains(got, c.want) {
						t.Errorf("evictions %q, want %q", got, c.want)
					}
				})
			})
		})
	}
}

// Figures from before the shortage say who used most then, and not who has made it: newer ones are waited for, but not
// for ever.
func TestRankingByFiguresOfTheMoment(t *testing.T) {
	for name, c := range map[string]struct {
		countable, think time.Duration
		want             string
	}{
		"at once":             {0, 0, "20s hog grace 1 TerminationByKubelet"},
		"soon":                {23 * time.Second, 0, "23s hog grace 1 TerminationByKubelet"},
		"never":               {time.Hour, 0, "30s steady grace 1 TerminationByKubelet"},
		"never, a slow stats": {time.Hour, 4 * time.Second, "33s steady grace 1 TerminationByKubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.ready()
				b.pod("hog", "1Mi", topic.Syncing, data)
				b.pod("steady", "1Mi", topic.Syncing, data)
				b.usage = map[string]int64{"hog": mib, "steady": mib}
				b.former, b.volumes = map[string]int64{"hog": mib, "steady": 100 * mib}, map[string]int64{
					"hog":    900 * mib,
					"steady": 100 * mib,
				}
				b.countedAt, b.countable, b.think = time.Now().Add(10*time.Second), time.Now().Add(c.countable), c.think
				b.run(func() {
					b.after(20*time.Second - readEvery/2)
					b.set(func() { b.disk = 50 * mib })
					b.after(15 * time.Second)
					b.want("evictions", b.evictions(), c.want)
				})
			})
		})
	}
}

// What was counted after the shortage began isn't too old when the last of the others is counted.
func TestCountingThatTakesItsTime(t *testing.T) {
	inBubble(t, func(b *bed) {
		data := func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{
				Name:         "data",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}}
		}
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing, data)
		b.pod("steady", "1Mi", topic.Syncing, data)
		b.usage = map[string]int64{"hog": mib, "steady": mib}
		b.former, b.countedAt, b.countable = map[string]int64{"steady": mib}, time.Now().Add(21*time.Second),
			time.Now().Add(time.Hour)
		b.run(func() {
			b.after(20*time.Second - readEvery/2)
			b.set(func() { b.disk = 50 * mib })
			b.after(7 * time.Second)
			b.set(func() { b.former["hog"] = 900 * mib })
			b.after(time.Second)
			b.want("evictions", b.evictions(), "27s hog grace 1 TerminationByKubelet")
		})
	})
}
