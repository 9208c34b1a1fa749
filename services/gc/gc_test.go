package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

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

// After a boot without the API server nobody knows which of its pods are gone: all that they have stays. What is of no
// use to any pod goes, or a static pod that crashes would leave a container each time.
func TestCollectionWhileASourceIsAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("static", 4)
		b.runtime.KillSandbox(b.dead("unknown", 1))
		b.runtime.AddImage("docker.io/library/unused:1", 500*mib)
		dir := filepath.Join(b.config.PodLogsDir, "default_unknown_unknown")
		writeFile(t, filepath.Join(dir, "app", "0.log"), "")
		b.must(os.Chtimes(dir, time.Unix(0, 0), time.Unix(0, 0)))
		b.pod("static", "1Mi", topic.Syncing)
		b.must(b.sources.Set("", topic.Sources{Waiting: []topic.Source{topic.SourceAPI}, Pods: []string{"static"}}))
		b.run(func() {
			b.after(3 * time.Minute)
			b.want("without the API server", b.inRuntime(), "2 containers, 2 sandboxes")
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("the logs of a pod that may be wanted: %v", err)
			}
			b.set(func() { b.disk = 50 * mib })
			b.after(time.Second)
			if b.runtime.Calls("RemoveImage") == 0 {
				t.Error("no image that nobody uses was removed on disk pressure")
			}
			b.set(func() { b.disk = 1000 * mib })
			b.ready()
			b.after(5 * time.Second)
			b.want("just when it has delivered", b.inRuntime(), "2 containers, 2 sandboxes")
			b.after(3 * time.Minute)
			b.want("in the end", b.inRuntime(), "1 containers, 1 sandboxes")
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

// A runtime that doesn't answer is said once, and its return fixes it.
func TestRuntimeAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("u1", 3)
		b.pod("u1", "1Mi", topic.Syncing)
		b.ready()
		b.runtime.Down()
		b.run(func() {
			b.after(time.Minute)
			if health := b.get(func() string { return b.health }); !strings.HasPrefix(health,
				"degraded: collection of containers: ") {
				t.Errorf("health %q", health)
			}
			b.runtime.Up(b.t)
			b.after(6 * time.Minute)
			b.want("in the end", b.inRuntime(), "1 containers, 1 sandboxes")
			b.want("health", b.get(func() string { return b.health }), "healthy")
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

// Logs of running containers are rotated when they have grown.
func TestLogs(t *testing.T) {
	inBubble(t, func(b *bed) {
		path := filepath.Join(b.config.PodLogsDir, "default_web_u1", "app", "0.log")
		writeFile(t, path, strings.Repeat("x", 2000))
		o := topic.PodObservation{Ref: topic.Ref{Namespace: "default", Name: "web", UID: "u1"}, Containers: []topic.Container{
			{ID: "c1", Name: "app", State: topic.ContainerRunning, LogPath: path},
			{ID: "c0", Name: "app", State: topic.ContainerExited, LogPath: "/nowhere/1.log"},
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
	s := &Service{state: newState()}
	absent, ended := errors.New("absent"), errors.New("ended")
	s.state.seen["u1"] = topic.PodObservation{Containers: []topic.Container{{
		ID: "c1", State: topic.ContainerRunning,
		LogPath: "/nowhere/0.log",
	}}}
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
