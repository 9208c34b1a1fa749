package resource

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/cpus"
)

// A static pod comes again under its UID. The bus may leave out that it was gone.
func TestAPodThatComesAgainUnderItsUID(t *testing.T) {
	limits := map[corev1.ResourceName]string{gpu: "1"}
	life := func(b *bed, pod *corev1.Pod, n int, lifecycle topic.Lifecycle) {
		b.t.Helper()
		if err := b.pods.Set(string(pod.UID), topic.Pod{
			Pod: pod, Lifecycle: lifecycle, Allocates: true, FirstSeen: time.Unix(int64(n), 0),
		}); err != nil {
			b.t.Fatal(err)
		}
		synctest.Wait()
	}
	has := func(b *bed) {
		b.t.Helper()
		b.says("a", "allocated")
		if a := b.allocation("a"); len(a.Containers["app"].Devices) != 1 {
			b.t.Errorf("it has %+v", a)
		}
		b.wants("other", limits)
		if a := b.allocation("other"); a.Phase != topic.AllocationRefused {
			b.t.Errorf("another pod gets its device: %+v", a)
		}
	}
	t.Run("it had ended", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu, "g0")
			pod := b.wants("a", limits)
			b.state(pod, topic.Terminated)
			b.says("a", "released")
			b.state(pod, topic.Syncing)
			has(b)
		})
	})
	t.Run("it was refused", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu)
			pod := b.wants("a", limits)
			if a := b.allocation("a"); a.Phase != topic.AllocationRefused {
				t.Errorf("got %+v", a)
			}
			b.state(pod, topic.Terminated)
			b.lists(gpu, "g0")
			b.state(pod, topic.Syncing)
			has(b)
		})
	})
	t.Run("nothing of its end was told", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu, "g0")
			pod := b.wants("a", limits)
			life(b, pod, 1, topic.Syncing)
			said := b.phases("a")
			life(b, pod, 2, topic.Syncing)
			if got := said(); !slices.Contains(got, topic.Allocated) {
				t.Errorf("podsync, which has forgotten the first life, is told %v", got)
			}
			has(b)
		})
	})
	t.Run("the daemon was started again between", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu, "g0")
			pod := b.wants("a", limits)
			b.stop()
			said := b.phases("a")
			life(b, pod, 2, topic.Syncing)
			b.start()
			if got := said(); !slices.Contains(got, topic.Allocated) {
				t.Errorf("podsync, which has forgotten the first life, is told %v", got)
			}
			b.lists(gpu, "g0")
			has(b)
		})
	})
	for name, again := range map[string]func(b *bed, pod *corev1.Pod){
		"its plugin was being asked": func(b *bed, pod *corev1.Pod) {
			if err := b.pods.Delete("a"); err != nil {
				b.t.Fatal(err)
			}
			synctest.Wait()
			b.state(pod, topic.Syncing)
		},
		"its plugin was being asked, and it had ended": func(b *bed, pod *corev1.Pod) {
			b.state(pod, topic.Terminated)
			b.state(pod, topic.Syncing)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.deaf = make(chan struct{})
				b.lists(gpu, "g0")
				pod := b.wants("a", limits)
				again(b, pod)
				if n := len(b.calls()); n != 1 {
					t.Errorf("its second life doesn't wait for the end of the first: %v", b.calls())
				}
				close(b.deaf)
				has(b)
			})
		})
	}
}

// A container is told of for its memory. After a restart its plugin, which never wanted to know, may be away.
func TestAStartThatIsToldOfForMemoryWaitsForNoPlugin(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(nic, "n0")
		pod := asks("a", "nic=1")
		pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		b.state(pod, topic.Syncing)
		b.says("a", "allocated")
		b.stop()
		said := b.allocation("a")
		c := said.Containers["c0"]
		c.PreStart, c.MemoryNodes = true, "0"
		said.Containers["c0"] = c
		if err := topic.PodAllocation.Writer(b.others).Set("a", said); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.strange = true
		b.start()
		asked := len(b.calls())
		_, err := topic.ResourcePreStart.Do(b.t.Context(), b.others, topic.PreStartRequest{
			Ref: topic.RefOf(pod), Container: "c0",
		})
		if err != nil || len(b.calls()) != asked {
			t.Errorf("it asks for %v, %v", b.calls()[asked:], err)
		}
	})
}

// What an init container had is free once another container starts. Nobody says so again after a restart.
func TestAStartThatFreesMemoryIsOnDiskBeforeItIsAnswered(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.stop()
		b.memory, b.policy = 11<<20, cpus.PolicyStatic
		b.start()
		pod := asks("a", "cpu=1")
		pod.Spec.InitContainers = []corev1.Container{*pod.Spec.Containers[0].DeepCopy()}
		init := &pod.Spec.InitContainers[0]
		init.Name = "init"
		large := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("10Mi")}
		init.Resources = corev1.ResourceRequirements{Limits: large, Requests: large}
		b.state(pod, topic.Syncing)
		b.says("a", "allocated")
		b.mu.Lock()
		b.written = errors.New("no space left on device")
		b.mu.Unlock()
		start := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(b.t.Context(), limit)
			defer cancel()
			_, err := b.service.preStart(ctx, topic.PreStartRequest{Ref: topic.RefOf(pod), Container: "c0"})
			return err
		}
		if start(time.Second) == nil {
			t.Error("the start is answered while the disk doesn't have what it frees")
		}
		b.mu.Lock()
		b.written = nil
		b.mu.Unlock()
		if err := start(time.Minute); err != nil {
			t.Error(err)
		}
		b.stop()
		b.start()
		other := asks("b", "cpu=1")
		other.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("9Mi")
		b.state(other, topic.Syncing)
		b.says("b", "allocated")
	})
}

// podsync asks at once where it is told of a start. The bus may tell of the pods later.
func TestAStartWaitsUntilThePodsAreKnown(t *testing.T) {
	inBubble(t, func(b *bed) {
		for known, want := range map[bool]error{false: errUntold, true: nil} {
			_, err := ask(b.t.Context(), b.service.loop, func() (start, error) {
				b.service.known.pods = known
				return starting(b.service, topic.PreStartRequest{Ref: topic.Ref{UID: "a"}, Container: "app"})
			})
			if !errors.Is(err, want) {
				t.Errorf("the pods are known: %v; got %v", known, err)
			}
		}
	})
}

// podsync ends a pod that was deleted while nobody ran here, without asking for anything for it.
func TestAnOrphanGivesBackWhatItHas(t *testing.T) {
	limits := map[corev1.ResourceName]string{gpu: "1", "cpu": "3", "memory": "1Mi"}
	for name, c := range map[string]struct{ ends, deleted bool }{
		"it ends":                 {ends: true},
		"it is gone":              {ends: true, deleted: true},
		"only its end is told of": {deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.static()
				b.lists(gpu, "g0")
				orphan := topic.Pod{Pod: b.wants("orphan", limits), Lifecycle: topic.Terminating}
				b.says("orphan", "allocated")
				b.stop()
				b.unsaid("orphan")
				step := func(err error) {
					if synctest.Wait(); err != nil {
						t.Fatal(err)
					}
				}
				if step(b.pods.Delete("orphan")); c.ends {
					step(b.pods.Set("orphan", orphan))
				}
				b.settle("orphan")
				b.start()
				b.lists(gpu, "g0")
				b.wants("early", limits)
				if a := b.allocation("early"); a.Phase != topic.AllocationRefused {
					t.Errorf("another pod gets what the orphan still has: %+v", a)
				}
				orphan.Lifecycle = topic.Terminated
				if c.deleted {
					step(b.pods.Delete("orphan"))
				} else {
					step(b.pods.Set("orphan", orphan))
				}
				b.wants("late", limits)
				b.says("late", "allocated")
			})
		})
	}
}
