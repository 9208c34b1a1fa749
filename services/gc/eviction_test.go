package gc

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
)

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

// A runtime that takes minutes for an image holds back neither the eviction for memory nor, for more than a minute, that for disk.
func TestASlowDiskHoldsBackNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.runtime.AddImage("docker.io/library/unused:1", 500*mib)
		b.runtime.On("RemoveImage", func(ctx context.Context, _ any) error { <-ctx.Done(); return ctx.Err() })
		b.ready()
		b.pod("a", "1Mi", topic.Syncing)
		b.pod("hog", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		})
		b.usage, b.volumes = map[string]int64{"a": 10 * mib, "hog": 20 * mib}, map[string]int64{"hog": 100 * mib}
		b.run(func() {
			b.after(2 * time.Minute)
			b.set(func() { b.disk = 50 * mib })
			b.after(10 * time.Second)
			b.set(func() { b.memory = 50 * mib })
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "2m10s hog grace 1 TerminationByKubelet")
			b.set(func() { b.memory = 1000 * mib })
			b.released("hog")
			b.after(50 * time.Second)
			// By then the one that used most is gone.
			got := b.evictions()
			if !strings.HasPrefix(got, "2m10s hog grace 1 TerminationByKubelet, 3m") || !strings.HasSuffix(got, "s a grace 1 TerminationByKubelet") {
				t.Errorf("evictions in the end %q", got)
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
				data := func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				}
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

// Figures from before the shortage say who used most then, and not who has made it: newer ones are waited for, but not for ever.
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
				data := func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				}
				b.ready()
				b.pod("hog", "1Mi", topic.Syncing, data)
				b.pod("steady", "1Mi", topic.Syncing, data)
				b.usage = map[string]int64{"hog": mib, "steady": mib}
				b.former, b.volumes = map[string]int64{"hog": mib, "steady": 100 * mib}, map[string]int64{"hog": 900 * mib, "steady": 100 * mib}
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
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing, data)
		b.pod("steady", "1Mi", topic.Syncing, data)
		b.usage = map[string]int64{"hog": mib, "steady": mib}
		b.former, b.countedAt, b.countable = map[string]int64{"steady": mib}, time.Now().Add(21*time.Second), time.Now().Add(time.Hour)
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

// The runtime frees the space of a container some time after its removal: nobody else is evicted meanwhile, if it is enough.
func TestSpaceThatIsFreedLate(t *testing.T) {
	for name, c := range map[string]struct {
		freed, images time.Duration
		want          string
	}{
		"enough":                    {4 * time.Second, 0, ""},
		"never":                     {time.Hour, 0, "25s a grace 1 TerminationByKubelet"},
		"never, images take theirs": {time.Hour, 3 * time.Second, "25s a grace 1 TerminationByKubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.dead("hog", 1)
				b.config.Kubelet.ImageMinimumGCAge.Duration = 0
				b.runtime.AddImage("docker.io/library/unused:1", 500*mib)
				b.runtime.On("RemoveImage", func(context.Context, any) error { time.Sleep(c.images); return nil })
				b.runtime.On("RemoveContainer", func(context.Context, any) error {
					time.AfterFunc(c.freed, func() { b.set(func() { b.disk = 1000 * mib }) })
					return nil
				})
				b.ready()
				b.pod("a", "1Mi", topic.Syncing)
				b.released("hog")
				b.usage = map[string]int64{"a": mib}
				b.run(func() {
					b.after(20*time.Second - readEvery/2)
					b.set(func() { b.disk = 50 * mib })
					before := b.get(func() string { return strconv.Itoa(b.reads) })
					b.after(10 * time.Second)
					b.want("evictions", b.evictions(), c.want)
					if n, _ := strconv.Atoi(before); b.reads-n > 21 {
						t.Errorf("memory was read %d times while a disk was waited for", b.reads-n)
					}
				})
			})
		})
	}
}

// Without knowing what shares a filesystem nobody is evicted for disk, nor for a limit on it.
func TestNoEvictionForDiskWithoutItsLayout(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("a", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mib, resource.BinarySI)}}}}
		})
		b.usage, b.volumes, b.disk, b.lost = map[string]int64{"a": mib}, map[string]int64{"a": 2 * mib}, 50*mib, true
		b.run(func() {
			b.after(30 * time.Second)
			b.want("evictions", b.evictions(), "")
			b.set(func() { b.lost = false })
			b.after(5 * time.Second)
			if got := b.evictions(); !strings.Contains(got, "a grace 1") {
				t.Errorf("evictions %q once it is known", got)
			}
		})
	})
}

// long is the grace period of the pods that a soft threshold meets.
func long(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(120)) }

// soft readies the bed with a soft threshold, and with two pods of which hog goes first.
func (b *bed) soft(maxGrace int32) {
	k := &b.config.Kubelet
	k.EvictionSoft, k.EvictionSoftGracePeriod = map[string]string{"memory.available": "500Mi"}, map[string]string{"memory.available": "10s"}
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

// A pod that has a long grace period is given it before the next goes, which a negative bound of the configuration leaves alone.
func TestSoftThreshold(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.soft(-1)
		b.run(func() {
			b.softlyEvicted()
			b.after(2 * time.Minute)
			b.want("evictions", b.evictions(), "15s hog grace 120 TerminationByKubelet")
			b.after(40 * time.Second)
			b.want("evictions", b.evictions(), "15s hog grace 120 TerminationByKubelet, 2m46s second grace 120 TerminationByKubelet")
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

// A filesystem that hangs hides no other signal, and is told of.
func TestAFilesystemThatHangs(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing)
		b.usage = map[string]int64{"hog": 100 * mib}
		b.run(func() {
			b.after(10 * time.Second)
			b.set(func() { b.hang = time.Minute })
			b.after(10 * time.Second)
			if health := b.get(func() string { return b.health }); !strings.Contains(health, "a filesystem hangs") {
				t.Errorf("health %q", health)
			}
			b.set(func() { b.memory = 50 * mib })
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "20s hog grace 1 TerminationByKubelet")
			b.set(func() { b.hang, b.memory = 0, 1000*mib })
			b.after(time.Minute)
			b.want("health", b.get(func() string { return b.health }), "healthy")
		})
	})
}

// A hard threshold doesn't wait until a pod has had the time that a soft one has given it: that pod is ended now, and nobody else.
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

// After a start, and while podsync is away, no pod is evicted for disk before it is known which images are of no use; but for a minute at most.
func TestReclaimingComesFirstAfterAStart(t *testing.T) {
	for name, c := range map[string]struct {
		ready bool
		want  string
	}{
		"sources deliver": {true, ""},
		"they don't":      {false, "1m0s hog grace 1 TerminationByKubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.config.Kubelet.ImageMinimumGCAge.Duration = 0
				b.runtime.AddImage("docker.io/library/unused:1", 500*mib)
				b.runtime.On("RemoveImage", func(context.Context, any) error { b.set(func() { b.disk = 1000 * mib }); return nil })
				b.pod("hog", "1Mi", topic.Syncing)
				b.usage, b.disk = map[string]int64{"hog": mib}, 50*mib
				if c.ready {
					b.ready()
				}
				b.run(func() {
					b.after(65 * time.Second)
					b.want("evictions", b.evictions(), c.want)
					if n := b.runtime.Calls("RemoveImage"); (n > 0) != c.ready {
						t.Errorf("%d images were removed", n)
					}
				})
			})
		})
	}
}
