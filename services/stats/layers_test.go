package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup/cgrouptest"
	"kubelot.dev/cri/critest"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/stats/internal/ttlcache"
)

// counting are answers that can do no more than count the writable layers in that list of mounts.
func counting(t *testing.T, mounts string) *answers {
	t.Helper()
	r, err := newReport(daemon.Env{Health: &health{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &sources{
		group: ttlcache.NewGroup(ctx), mounts: mounts, walks: newTurns(walkers), walkTime: walkTimeout,
		counted:  map[part]*ttlcache.Cell[layer]{},
		problems: map[part]error{},
	}
	t.Cleanup(func() {
		cancel()
		s.group.Wait(time.Hour)
	})
	return &answers{report: r, sources: s}
}

// A writable layer of which the runtime's figures are too old is counted, where it is known where it is; the others are
// as the runtime says.
func TestWritableLayersOfTheMoment(t *testing.T) {
	dir := t.TempDir()
	upper := filepath.Join(dir, "snapshots", "7", "fs")
	mount := func(id, kind, upper string) string {
		return fmt.Sprintf("100 1 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/rootfs rw - %s %[2]s "+
			"rw,lowerdir=/l,upperdir=%s,workdir=/w\n", id, kind, upper)
	}
	mounts := filepath.Join(dir, "mountinfo")
	text := mount("old", "overlay", upper) + mount("new", "overlay", upper) + mount("untold", "overlay", upper) +
		mount("other", "fuse", upper) +
		mount("escaped", "overlay", `/a\040b`) + mount("gone", "overlay", filepath.Join(dir, "gone")) +
		"100 1 0:50 / /elsewhere rw - overlay overlay rw,upperdir=" + upper + "\n"
	if err := os.MkdirAll(upper, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{mounts: []byte(text), filepath.Join(upper, "file"): make([]byte, 100_000)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, now := counting(t, mounts), time.Now()
	s := a.sources
	f := &figures{now: now, layers: map[string]layer{}}
	pod := podView{}
	for _, id := range []string{"old", "new", "untold", "other", "escaped", "gone"} {
		pod.containers = append(pod.containers, containerView{id: id})
		if id != "untold" {
			f.layers[id] = layer{at: now.Add(-10 * time.Second), usage: disk.Usage{Bytes: 1, Inodes: 1}}
		}
	}
	f.layers["new"] = layer{at: now, usage: disk.Usage{Bytes: 1}}
	f.view.pods = []podView{pod}
	runtimes := f.layers
	a.recount(t.Context(), f, time.Second)
	for id, counted := range map[string]bool{
		"old": true, "untold": true, "new": false, "other": false,
		"escaped": false, "gone": false,
	} {
		l := f.layers[id]
		if is := l.usage.Bytes >= 100_000 && l.usage.Inodes == 2 && l.inodes && l.fs != nil &&
			!l.at.Before(now); is != counted || !is && l.usage.Bytes != 1 {
			t.Errorf("%s: counted %v, want %v: %+v", id, is, counted, l)
		}
	}
	if err := s.podProblems(); err != nil {
		t.Errorf("a container that goes is a problem: %v", err)
	}
	if s.keepLayers(pod.ref.UID, []topic.Container{{ID: "old"}}); len(s.counted) != 1 ||
		s.counted[layerPart(pod.ref.UID, "old")] == nil {
		t.Errorf("%d cells are left of a pod with one container", len(s.counted))
	}
	if s.forget(pod.ref.UID); len(s.counted) > 0 {
		t.Errorf("%d cells are left of a pod that is gone", len(s.counted))
	}
	// A disk on which nothing is counted holds up no answer.
	for range walkers {
		s.walks.routine <- struct{}{}
	}
	late, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	sick := &figures{now: now, view: f.view, layers: runtimes}
	if a.recount(late, sick, time.Second); sick.layers["old"].usage.Bytes != 1 {
		t.Errorf("counted though nothing could be: %+v", sick.layers["old"])
	}
	if runtimes["old"].usage.Bytes != 1 {
		t.Error("the reading that others share was changed")
	}
	a.sources.mounts = dir
	if a.recount(t.Context(), f, 0); f.layers["old"].usage.Bytes == 0 {
		t.Error("the runtime's figures are lost with the list of mounts")
	}
	a.sources.mounts = filepath.Join(dir, "none")
	if a.recount(t.Context(), f, 0); f.layers["old"].usage.Bytes == 0 {
		t.Error("the runtime's figures are lost without a list of mounts")
	}
}

// A layer that can't be counted whole has its lower bound where the runtime tells less, and the daemon's health says so
// until the runtime can tell or the container is gone. A runtime that hangs takes only a part of the answer's time.
func TestWritableLayerThatCannotBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mount := "100 1 0:50 / /run/" + cgrouptest.App + "/rootfs rw - overlay overlay rw,lowerdir=/l,upperdir=" +
			deep(t) + ",workdir=/w"
		n := start(t, cgrouptest.V1+"\n-- proc/self/mountinfo --\n"+mount, "cgroupfs")
		defer n.stop()
		n.runtime.On("ListContainerStats", critest.Hang)
		for _, pods := range [][]string{nil, {cgrouptest.UID}} {
			began := time.Now()
			c := n.summary(topic.SummaryRequest{Pods: pods, MaxAge: time.Second}).Pods[0].Containers[0]
			if took := time.Since(began); took >= patience || c.Rootfs == nil || *c.Rootfs.UsedBytes < 1<<20 ||
				c.Rootfs.Time.Time.Before(began) {
				t.Errorf("after %v: %+v", took, c.Rootfs)
			}
			if why := n.health.why(); !strings.Contains(why, "writable layer of "+cgrouptest.App) {
				t.Errorf("health: %s", why)
			}
		}
		n.runtime.On("ListContainerStats", nil)
		if err := set(n, "pleg", topic.PLEGEvent, topic.PodObservation{
			Ref: ref, Sandboxes: []topic.Sandbox{{ID: cgrouptest.Box, Ready: true, CreatedAt: time.Now()}},
			Containers: []topic.Container{{
				ID: "next", SandboxID: cgrouptest.Box, Name: "app", State: topic.ContainerRunning,
				CreatedAt: time.Now(),
			}},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if n.summary(topic.SummaryRequest{}); n.health.get() != topic.Healthy {
			t.Errorf("after the container went the daemon is %s: %s", n.health.get(), n.health.why())
		}
	})
}

// Of a layer that can't be counted whole the larger of the figures holds.
func TestTheLowerBoundOfALayer(t *testing.T) {
	dir := t.TempDir()
	mounts := filepath.Join(dir, "mountinfo")
	if err := os.WriteFile(mounts, []byte("100 1 0:50 / /run/app/rootfs rw - overlay overlay rw,upperdir="+deep(t)+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	a, now := counting(t, mounts), time.Now()
	s := a.sources
	for name, c := range map[string]struct {
		told             layer
		counted, problem bool
	}{
		"not counted by the runtime": {layer{at: time.Unix(0, 0)}, true, true},
		"more, a while ago":          {layer{at: now.Add(-time.Minute), usage: disk.Usage{Bytes: 1 << 62}}, false, true},
		"told in time":               {layer{at: now.Add(time.Hour)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := layerPart("", "app")
			cellOf(s, s.counted, p)
			s.note(p, errors.New("as before"))
			f := &figures{
				now: now, layers: map[string]layer{"app": c.told},
				view: view{pods: []podView{{containers: []containerView{{id: "app"}}}}},
			}
			a.recount(t.Context(), f, time.Second)
			if got := f.layers["app"]; (got.err != nil) != c.counted || c.counted && got.usage.Bytes < 1<<20 ||
				!c.counted && got != c.told {
				t.Errorf("%+v, told %+v", got, c.told)
			}
			if err := s.podProblems(); (err != nil) != c.problem {
				t.Errorf("problem %v", err)
			}
		})
	}
}
