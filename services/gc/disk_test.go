package gc

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

// On disk pressure what is of no use goes first; a pod only if that isn't enough.
func TestDiskPressure(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.runtime.AddImage("docker.io/library/unused:1", 500*mib)
		b.pod("hog", "1Mi", topic.Syncing)
		b.usage = map[string]int64{"hog": mib}
		b.ready()
		b.runtime.On("RemoveImage", nil)
		b.run(func() {
			b.after(2 * time.Minute)
			b.set(func() { b.disk = 50 * mib })
			removed := func() bool { return b.runtime.Calls("RemoveImage") > 0 }
			b.after(time.Second)
			if !removed() {
				t.Error("the unused image is still there")
			}
			// It isn't enough.
			if got := b.evictions(); !strings.HasSuffix(got, "s hog grace 1 TerminationByKubelet") {
				t.Errorf("evictions %q", got)
			}
			if p := b.pressure(); !p.Disk || p.Memory {
				t.Errorf("pressure %+v", p)
			}
		})
	})
}

// The image of sandboxes stays though the runtime doesn't pin it and no container has it: without it no pod starts.
func TestTheImageOfSandboxes(t *testing.T) {
	inBubble(t, func(b *bed) {
		const pause = "registry.k8s.io/pause:3.6"
		b.runtime.AddImage(pause, mib)
		b.sandboxImage = pause
		b.ready()
		b.run(func() {
			b.after(2 * time.Minute)
			b.want("plan", b.plans(pause), "in use by the sandboxes of pods")
			b.set(func() { b.disk = 50 * mib })
			b.after(time.Second)
			client := b.runtime.Client(b.t, 0)
			defer client.Close()
			for image, stays := range map[string]bool{pause: true, busybox: false} {
				left, err := client.ImageStatus(b.t.Context(), &runtimeapi.ImageSpec{Image: image})
				b.must(err)
				if (left != nil) != stays {
					t.Errorf("image %s is there: %v, want %v", image, left != nil, stays)
				}
			}
		})
	})
}

// Whoever uses more local storage than it may is evicted, without DisruptionTarget; who has no limit isn't measured.
func TestStorageLimit(t *testing.T) {
	inBubble(t, func(b *bed) {
		limit := resource.MustParse("10Mi")
		limited := func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{
				Name:         "data",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}},
			}}
		}
		b.pod("much", "1Mi", topic.Syncing, limited)
		b.pod("little", "1Mi", topic.Syncing, limited)
		b.pod("free", "1Mi", topic.Syncing)
		b.usage = map[string]int64{"much": mib, "little": mib, "free": mib}
		b.volumes = map[string]int64{"much": 11 * mib, "little": 10 * mib, "free": 100 * mib}
		b.run(func() {
			b.after(30 * time.Second)
			b.want("evictions", b.evictions(), "0s much grace 1 ")
			b.want("message", b.message, `Usage of EmptyDir volume "data" exceeds the limit "10Mi". `)
			if age := b.allowed; age < limitsEvery {
				t.Errorf("figures may be %v old: the runtime's are older, so that stats would count all writable layers itself",
					age)
			}
		})
	})
}

// A runtime that takes minutes for an image holds back neither the eviction for memory nor, for more than a minute,
// that for disk.
func TestASlowDiskHoldsBackNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.runtime.AddImage("docker.io/library/unused:1", 500*mib)
		b.runtime.On("RemoveImage", func(ctx context.Context, _ any) error { <-ctx.Done(); return ctx.Err() })
		b.ready()
		b.pod("a", "1Mi", topic.Syncing)
		b.pod("hog", "1Mi", topic.Syncing, data)
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
			if !strings.HasPrefix(got, "2m10s hog grace 1 TerminationByKubelet, 3m") ||
				!strings.HasSuffix(got, "s a grace 1 TerminationByKubelet") {
				t.Errorf("evictions in the end %q", got)
			}
		})
	})
}

// The runtime frees the space of a container some time after its removal: nobody else is evicted meanwhile, if it comes
// in time.
func TestSpaceThatIsFreedLate(t *testing.T) {
	for name, c := range map[string]struct {
		freed, images time.Duration
		want          string
	}{
		"enough":                    {19 * time.Second, 0, ""},
		"never":                     {time.Hour, 0, "40s a grace 1 TerminationByKubelet"},
		"never, images take theirs": {time.Hour, 3 * time.Second, "40s a grace 1 TerminationByKubelet"},
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
					b.after(21 * time.Second)
					b.want("evictions", b.evictions(), c.want)
					if n, _ := strconv.Atoi(before); b.reads-n > 43 {
						t.Errorf("memory was read %d times while a disk was waited for", b.reads-n)
					}
				})
			})
		})
	}
}

// What an evicted pod had is freed some time after it is gone. Where that ends the shortage nobody else is evicted
// meanwhile, however long it takes, within a minute; where it can't, nobody waits for it.
func TestSpaceOfAnEvictedPodIsFreedLate(t *testing.T) {
	for _, removedBy := range []string{"podsync", "gc"} {
		for name, c := range map[string]struct {
			uses        int64
			freed, then time.Duration
			want        string
		}{
			"enough, late":  {100 * mib, 55 * time.Second, 80 * time.Second, ""},
			"enough, never": {100 * mib, time.Hour, 70 * time.Second, ", 1m22s a grace 1 TerminationByKubelet"},
			"too little":    {40 * mib, time.Hour, 20 * time.Second, ", 22s a grace 1 TerminationByKubelet"},
		} {
			t.Run(name+", removed by "+removedBy, func(t *testing.T) {
				inBubble(t, func(b *bed) {
					if removedBy == "gc" {
						b.dead("hog", 2)
					}
					b.ready()
					b.pod("hog", "1Mi", topic.Syncing, data)
					b.pod("a", "1Mi", topic.Syncing, data)
					b.usage = map[string]int64{"hog": mib, "a": mib}
					b.volumes = map[string]int64{"hog": c.uses, "a": mib}
					b.run(func() {
						b.after(20*time.Second - readEvery/2)
						b.set(func() { b.disk = 50 * mib })
						b.after(2 * time.Second)
						const hog = "20s hog grace 1 TerminationByKubelet"
						b.want("evictions", b.evictions(), hog)
						b.released("hog")
						b.set(func() { delete(b.usage, "hog"); delete(b.volumes, "hog") })
						time.AfterFunc(c.freed, func() { b.set(func() { b.disk = 50*mib + c.uses }) })
						b.after(5 * time.Second)
						plan := b.plans("hard nodefs.available<100Mi")
						waits := strings.Contains(plan, "while the runtime frees the space of default/hog")
						if enough := c.uses > 50*mib; waits != enough {
							t.Errorf("the plan waits for space: %t, want %t", waits, enough)
						}
						b.after(c.then - 5*time.Second)
						b.want("evictions", b.evictions(), hog+c.want)
					})
				})
			})
		}
	}
}

// What was not short when a pod was evicted doesn't wait for what is freed of that pod.
func TestAnotherShortageDoesNotWaitForSpace(t *testing.T) {
	inBubble(t, func(b *bed) {
		c := &counter{}
		b.counted(c)
		c.now["files"] = use{400 * mib, 15_000}
		b.run(func() {
			b.after(20*time.Second - readEvery/2)
			b.set(func() { b.inodes = 1000 })
			b.after(2 * time.Second)
			b.released("files")
			b.set(func() { b.inodes, b.disk = 16_000, 50*mib; delete(c.now, "files") })
			b.after(4 * time.Second)
			if got := b.evictions(); !strings.HasPrefix(got, "20s files grace") || !strings.Contains(got, "s hog grace") {
				t.Errorf("evictions %s", got)
			}
		})
	})
}

// Without knowing what shares a filesystem nobody is evicted for disk, nor for a limit on it.
func TestNoEvictionForDiskWithoutItsLayout(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("a", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{
				Name: "data",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mib,
					resource.BinarySI)}},
			}}
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

// So is one that hangs from the start.
func TestAFilesystemThatHangsFromTheStart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.hang = 30 * time.Second
		b.run(func() {
			b.after(10 * time.Second)
			if health := b.get(func() string { return b.health }); !strings.Contains(health, "a filesystem hangs") {
				t.Errorf("health %q", health)
			}
			b.set(func() { b.hang = 0 })
			b.after(time.Minute)
			b.want("health", b.get(func() string { return b.health }), "healthy")
		})
	})
}

// After a start, and while podsync is away, no pod is evicted for disk before it is known which images are of no use;
// but for a minute at most.
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
