package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
)

// Who uses most above its request is evicted within two seconds; the next only when that one has ended and memory is still short.
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
			if p := b.pressure(); !p.Memory || p.Disk || !strings.Contains(p.Message, "memory.available is 50Mi, hard threshold 100Mi") {
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
			b.want("evictions in the end", b.evictions(), "20s hog grace 1 TerminationByKubelet, 35s second grace 1 TerminationByKubelet")
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

// Nothing is deleted before it is known what should run, without the bus, or when the bus has lost podsync's state.
func TestDeletesNothingWithoutKnowing(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("u1", 3)
		sandbox := b.dead("gone", 1)
		b.runtime.KillSandbox(sandbox)
		writeFile(t, filepath.Join(b.config.PodLogsDir, "default_gone_gone", "app", "0.log"), "")
		old := time.Unix(0, 0)
		b.must(os.Chtimes(filepath.Join(b.config.PodLogsDir, "default_gone_gone"), old, old))
		b.pod("u1", "1Mi", topic.Syncing)
		b.run(func() {
			const all = "4 containers, 2 sandboxes"
			b.after(3 * time.Minute)
			b.want("without sources", b.inRuntime(), all)
			b.ready()
			b.after(5 * time.Second)
			b.want("just when sources are ready", b.inRuntime(), all)
			b.bus.Disconnect()
			b.after(3 * time.Minute)
			b.want("without the bus", b.inRuntime(), all)
			b.bus.LoseState()
			b.must(b.sources.Delete(""))
			b.after(3 * time.Minute)
			b.want("with podsync's state missing", b.inRuntime(), all)
			b.ready()
			b.after(3 * time.Minute)
			b.want("in the end", b.inRuntime(), "1 containers, 1 sandboxes")
			if _, err := os.Stat(filepath.Join(b.config.PodLogsDir, "default_gone_gone")); !os.IsNotExist(err) {
				t.Errorf("the logs of a pod that is gone: %v", err)
			}
			b.want("health", b.get(func() string { return b.health }), "healthy")
		})
	})
}

// The logs of a pod that comes while a slow runtime removes what is dead stay.
func TestLogsOfAPodThatComesDuringTheSweep(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("u1", 2)
		b.pod("u1", "1Mi", topic.Syncing)
		b.ready()
		b.runtime.On("RemoveContainer", func(context.Context, any) error { time.Sleep(time.Minute); return nil })
		old := filepath.Join(b.config.PodLogsDir, "default_gone_gone")
		writeFile(t, filepath.Join(old, "app", "0.log"), "")
		b.must(os.Chtimes(old, time.Unix(0, 0), time.Unix(0, 0)))
		b.run(func() {
			b.after(20 * time.Second)
			b.pod("late", "1Mi", topic.Syncing)
			dir := filepath.Join(b.config.PodLogsDir, "default_late_late")
			writeFile(t, filepath.Join(dir, "app", "0.log"), "")
			b.must(os.Chtimes(dir, time.Now(), time.Now()))
			b.after(time.Minute)
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("the logs of a pod that runs: %v", err)
			}
			if _, err := os.Stat(old); !os.IsNotExist(err) {
				t.Errorf("the logs of a pod that is gone: %v", err)
			}
		})
	})
}

// A runtime that doesn't answer is said once, and its return mends it.
func TestRuntimeAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("u1", 3)
		b.pod("u1", "1Mi", topic.Syncing)
		b.ready()
		b.runtime.Down()
		b.run(func() {
			b.after(time.Minute)
			if health := b.get(func() string { return b.health }); !strings.HasPrefix(health, "degraded: collection of containers: ") {
				t.Errorf("health %q", health)
			}
			b.runtime.Up(b.t)
			b.after(6 * time.Minute)
			b.want("in the end", b.inRuntime(), "1 containers, 1 sandboxes")
			b.want("health", b.get(func() string { return b.health }), "healthy")
		})
	})
}

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

// An image stays whose pod has come while another image was removed.
func TestAnImageThatAPodNeedsMeanwhile(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.runtime.AddImage("docker.io/library/one:1", mib)
		b.runtime.AddImage("docker.io/library/two:1", mib)
		b.ready()
		b.runtime.On("RemoveImage", func(context.Context, any) error { time.Sleep(20 * time.Second); return nil })
		b.run(func() {
			b.after(2 * time.Minute)
			b.set(func() { b.disk = 50 * mib })
			b.after(10 * time.Second)
			before := b.runtime.Calls("RemoveImage")
			uses := func(image string) func(*corev1.Pod) {
				return func(p *corev1.Pod) { p.Spec.Containers[0].Image = "docker.io/library/" + image }
			}
			b.pod("p1", "1Mi", topic.Syncing, uses("one:1"))
			b.pod("p2", "1Mi", topic.Syncing, uses("two:1"))
			b.pod("p3", "1Mi", topic.Syncing)
			b.after(time.Minute)
			if n := b.runtime.Calls("RemoveImage"); n == 0 || n != before {
				t.Errorf("%d images were removed, want the %d whose removal was under way", n, before)
			}
		})
	})
}

// Whoever uses more local storage than it may is evicted, without DisruptionTarget; who has no limit isn't measured.
func TestStorageLimit(t *testing.T) {
	inBubble(t, func(b *bed) {
		limit := resource.MustParse("10Mi")
		limited := func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
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
				t.Errorf("figures may be %v old: the runtime's are older, so that stats would count all writable layers itself", age)
			}
		})
	})
}

// The plan says what would be done, by the same decisions, and does nothing.
func TestPlan(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("u1", 3)
		b.pod("u1", "1Mi", topic.Syncing)
		b.usage = map[string]int64{"u1": mib}
		b.run(func() {
			cli := b.bus.Conn("cli")
			defer cli.Close()
			b.after(time.Second)
			plan, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{})
			if err != nil || plan.Waiting == "" {
				t.Errorf("before sources are ready: %+v, %v", plan, err)
			}
			b.ready()
			b.after(time.Second)
			b.set(func() { b.memory = 50 * mib; b.deaf = true })
			b.after(time.Second)
			if _, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{}); err == nil {
				t.Error("a plan without statistics")
			}
			b.set(func() { b.deaf = false })
			plan, err = topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{Images: true})
			if err != nil {
				t.Fatal(err)
			}
			deeds := map[topic.Deed]int{}
			for _, d := range plan.Decisions {
				deeds[d.Deed]++
				if d.Reason == "" || d.At.IsZero() {
					t.Errorf("decision without a reason or a time: %+v", d)
				}
			}
			if deeds[topic.DeedRemoveContainer] != 2 || deeds[topic.DeedEvict] != 1 || deeds[topic.DeedKeep] < 3 || !strings.Contains(plan.Waiting, "must be for 10s") {
				t.Errorf("plan %+v", plan)
			}
			b.want("after it", b.inRuntime(), "3 containers, 1 sandboxes")
		})
	})
}

// The plan names who is over its limit on local storage, and says that pods are not the first to go for disk.
func TestPlanForDisk(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Priority = new(int32(2_000_000_000)) // critical, so that nobody evicts it
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mib, resource.BinarySI)}}}}
		})
		b.pod("over", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mib, resource.BinarySI)}}}}
		})
		b.usage, b.volumes = map[string]int64{"hog": mib, "over": mib}, map[string]int64{"hog": 2 * mib, "over": 2 * mib}
		b.disk = 50 * mib
		b.run(func() {
			b.after(15 * time.Second)
			cli := b.bus.Conn("cli")
			defer cli.Close()
			plan, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var reasons []string
			for _, d := range plan.Decisions {
				if d.Deed == topic.DeedEvict {
					reasons = append(reasons, d.Object+" "+d.Reason)
				}
			}
			got := strings.Join(reasons, "\n")
			for _, want := range []string{"unused images go first", `default/over Usage of EmptyDir volume "data" exceeds the limit`} {
				if !strings.Contains(got, want) {
					t.Errorf("evictions %s\nlack %q", got, want)
				}
			}
			if strings.Contains(got, "default/hog") {
				t.Errorf("evictions %s: a critical pod is among them", got)
			}
		})
	})
}

// Logs of running containers are rotated when they have grown.
func TestLogs(t *testing.T) {
	inBubble(t, func(b *bed) {
		path := filepath.Join(b.config.PodLogsDir, "default_web_u1", "app", "0.log")
		writeFile(t, path, strings.Repeat("x", 2000))
		o := topic.PodObservation{Ref: topic.Ref{Namespace: "default", Name: "web", UID: "u1"}, Containers: []topic.Container{
			{ID: "c1", Name: "app", State: topic.ContainerRunning, LogPath: path}, {ID: "c0", Name: "app", State: topic.ContainerExited, LogPath: "/nowhere/1.log"},
		}}
		b.must(b.seen.Set("u1", o))
		b.run(func() {
			b.after(time.Second)
			// The runtime doesn't know the container, so the log has its name back.
			if _, err := os.Stat(path); err != nil || b.runtime.Calls("ReopenContainerLog") == 0 {
				t.Errorf("log: %v", err)
			}
			if health := b.get(func() string { return b.health }); !strings.HasPrefix(health, "degraded: rotation of logs: ") {
				t.Errorf("health %q", health)
			}
		})
	})
}

// A container may end, and its pod's logs go, while its log is looked at.
func TestLogOfAContainerThatEndsMeanwhile(t *testing.T) {
	s := &Service{world: newWorld()}
	absent, ended := errors.New("absent"), errors.New("ended")
	s.world.seen["u1"] = topic.PodObservation{Containers: []topic.Container{{ID: "c1", State: topic.ContainerRunning, LogPath: "/nowhere/0.log"}}}
	err := errors.Join(s.stillRunning([]log{{id: "c0"}, {id: "c1"}}, []error{ended, absent})...)
	if !errors.Is(err, absent) || errors.Is(err, ended) {
		t.Errorf("%v; want what is wrong with the log of the container that runs", err)
	}
}

func TestBadSettings(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Gi"}
	if _, err := newSettings(c); err == nil || !strings.Contains(err.Error(), "evictionSoftGracePeriod") {
		t.Errorf("error %v", err)
	}
}
