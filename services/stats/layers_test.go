package stats

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubelot.dev/daemon"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/stats/internal/fresh"
)

// A writable layer of which the runtime's figures are too old is counted, where it is known where it is; the others are as the runtime says.
func TestWritableLayersOfTheMoment(t *testing.T) {
	dir := t.TempDir()
	upper := filepath.Join(dir, "snapshots", "7", "fs")
	mount := func(id, kind, upper string) string {
		return fmt.Sprintf("100 1 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/rootfs rw - %s %[2]s rw,lowerdir=/l,upperdir=%s,workdir=/w\n", id, kind, upper)
	}
	mounts := filepath.Join(dir, "mountinfo")
	text := mount("old", "overlay", upper) + mount("new", "overlay", upper) + mount("untold", "overlay", upper) + mount("other", "fuse", upper) +
		mount("escaped", "overlay", `/a\040b`) + mount("gone", "overlay", filepath.Join(dir, "gone")) + "100 1 0:50 / /elsewhere rw - overlay overlay rw,upperdir=" + upper + "\n"
	if err := os.MkdirAll(upper, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{mounts: []byte(text), filepath.Join(upper, "file"): make([]byte, 100_000)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &health{}
	r, err := newReport(daemon.Env{Health: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &sources{
		group: fresh.NewGroup(ctx), mounts: mounts, walks: make(chan struct{}, walkers), walkTime: walkTimeout, counted: map[part]*fresh.Cell[layer]{},
	}
	defer s.group.Wait(time.Hour)
	defer cancel()
	a := &answers{report: r, sources: s}
	now := time.Now()
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
	for id, counted := range map[string]bool{"old": true, "untold": true, "new": false, "other": false, "escaped": false, "gone": false} {
		l := f.layers[id]
		if is := l.usage.Bytes >= 100_000 && l.usage.Inodes == 2 && l.inodes && l.fs != nil && !l.at.Before(now); is != counted || !is && l.usage.Bytes != 1 {
			t.Errorf("%s: counted %v, want %v: %+v", id, is, counted, l)
		}
	}
	if s.forget(pod.ref.UID); len(s.counted) > 0 {
		t.Errorf("%d cells are left of a pod that is gone", len(s.counted))
	}
	// A disk on which nothing is counted holds up no answer.
	for range walkers {
		s.walks <- struct{}{}
	}
	late, stop := context.WithTimeout(ctx, time.Millisecond)
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
