package gc

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// reload gives the running daemon a configuration that differs from its own.
func (b *bed) reload(change func(c *config.Config)) error {
	c := *b.config
	c.Kubelet.EvictionHard = maps.Clone(c.Kubelet.EvictionHard)
	change(&c)
	return b.service.reload(b.t.Context(), &c)
}

// A threshold that is raised above what is available evicts within two seconds, and one that is lowered ends the
// pressure after the transition period, which changes too.
func TestReloadOfThresholds(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "10Mi", topic.Syncing)
		b.usage = map[string]int64{"hog": 300 * mib}
		b.run(func() {
			b.after(20 * time.Second)
			b.want("evictions at first", b.evictions(), "")
			b.must(b.reload(func(c *config.Config) { c.Kubelet.EvictionHard["memory.available"] = "2000Mi" }))
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "20s hog grace 1 TerminationByKubelet")
			if p := b.pressure(); !p.Memory || !strings.Contains(p.Message, "hard threshold 2000Mi") {
				t.Errorf("pressure %+v", p)
			}
			b.released("hog")
			b.must(b.reload(func(c *config.Config) {
				c.Kubelet.EvictionPressureTransitionPeriod = metav1.Duration{Duration: 10 * time.Second}
			}))
			b.after(9 * time.Second)
			if !b.pressure().Memory {
				t.Error("the condition ends before its new transition period")
			}
			b.after(3 * time.Second)
			if p := b.pressure(); p.Memory {
				t.Errorf("pressure %+v", p)
			}
		})
	})
}

// What is remembered of a soft threshold that stays is kept, and its new grace period counts from when it was met.
func TestReloadOfAGracePeriod(t *testing.T) {
	inBubble(t, func(b *bed) {
		soft := func(grace string) func(c *config.Config) {
			return func(c *config.Config) {
				c.Kubelet.EvictionSoft = map[string]string{"memory.available": "500Mi"}
				c.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": grace}
				c.Kubelet.EvictionMaxPodGracePeriod = 7
			}
		}
		b.ready()
		b.pod("hog", "10Mi", topic.Syncing)
		b.usage = map[string]int64{"hog": 300 * mib}
		b.memory = 400 * mib
		b.run(func() {
			b.must(b.reload(soft("1h")))
			b.after(30 * time.Second)
			b.want("evictions within the hour", b.evictions(), "")
			b.must(b.reload(soft("20s")))
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "30s hog grace 7 TerminationByKubelet")
		})
	})
}

// A configuration that gc can't use changes nothing.
func TestReloadThatFails(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "10Mi", topic.Syncing)
		b.usage = map[string]int64{"hog": 300 * mib}
		b.run(func() {
			b.after(20 * time.Second)
			err := b.reload(func(c *config.Config) {
				c.Kubelet.EvictionHard["memory.available"] = "2000Mi"
				c.Kubelet.ContainerLogMaxSize = "much"
			})
			if err == nil {
				t.Error("no error")
			}
			b.after(time.Minute)
			b.want("evictions", b.evictions(), "")
		})
		ended, end := context.WithCancel(b.t.Context())
		end()
		if err := b.service.reload(ended, b.config); err == nil {
			t.Error("a daemon that has stopped takes a configuration")
		}
	})
}

// The log's limits count at the next look, which comes at most ten seconds after the last one.
func TestReloadOfLogLimits(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.config.Kubelet.ContainerLogMonitorInterval = &metav1.Duration{Duration: time.Hour}
		b.config.Kubelet.ContainerLogMaxSize = "1Mi"
		path := filepath.Join(b.config.PodLogsDir, "default_web_u1", "app", "0.log")
		writeFile(t, path, strings.Repeat("x", 2000))
		b.must(b.seen.Set("u1", topic.PodObservation{
			Ref:        topic.Ref{Namespace: "default", Name: "web", UID: "u1"},
			Containers: []topic.Container{{ID: "c1", Name: "app", State: topic.ContainerRunning, LogPath: path}},
		}))
		b.run(func() {
			b.after(time.Minute)
			if n := b.runtime.Calls("ReopenContainerLog"); n > 0 {
				t.Errorf("a log of 2000 bytes was rotated %d times, and 1Mi is allowed", n)
			}
			b.must(b.reload(func(c *config.Config) { c.Kubelet.ContainerLogMaxSize = "1Ki" }))
			b.after(10 * time.Second)
			if b.runtime.Calls("ReopenContainerLog") == 0 {
				t.Error("the log isn't rotated by its new limit")
			}
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				t.Error("the log is gone, although the runtime didn't open another")
			}
		})
	})
}

// What gc takes while it runs concerns it, and by no other name.
func TestReloadableFieldsAreGCs(t *testing.T) {
	for _, field := range reloadable {
		known := slices.ContainsFunc(config.Fields, func(f config.Field) bool { return f.Path == field })
		if !known || !config.Concerns(field, "gc") {
			t.Errorf("%s: known %v, concerns gc %v", field, known, config.Concerns(field, "gc"))
		}
	}
}
