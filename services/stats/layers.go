package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"

	"kubelot.dev/daemon/disk"
)

// layerDirs are the directories that hold the writable layers, by container ID. They are known where the runtime mounts an overlay at
// <ID>/rootfs, as containerd does.
func (s *sources) layerDirs() (map[string]string, error) {
	file, err := os.Open(s.mounts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, mountinfo.FSTypeFilter("overlay"))
	if err != nil {
		return nil, fmt.Errorf("read where writable layers are: %w", err)
	}
	dirs := map[string]string{}
	for _, m := range mounts {
		parent, last := path.Split(m.Mountpoint)
		if last != "rootfs" {
			continue
		}
		for option := range strings.SplitSeq(m.VFSOptions, ",") {
			// A name with an escaped character is left to the runtime.
			if dir, ok := strings.CutPrefix(option, "upperdir="); ok && path.IsAbs(dir) && !strings.Contains(dir, `\`) {
				dirs[path.Base(parent)] = dir
			}
		}
	}
	return dirs, nil
}

// recount counts the writable layers of which the runtime's figures are older than the caller allows: containerd's may be 10 s old, and
// by them the wrong pod would be evicted. What can't be counted whole in time stays the runtime's.
func (a *answers) recount(ctx context.Context, f *figures, maxAge time.Duration) {
	dirs, err := a.sources.layerDirs()
	a.report.source("writable layers", err)
	oldest := f.now.Add(-maxAge)
	layers := maps.Clone(f.layers) // others have the same map
	if layers == nil {
		layers = map[string]layer{}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range f.view.pods {
		pod := &f.view.pods[i]
		for _, c := range pod.containers {
			told, known := f.layers[c.id]
			dir := dirs[c.id]
			if dir == "" || known && !told.at.Before(oldest) {
				continue
			}
			wg.Go(func() {
				if l, ok := a.sources.layer(ctx, layerPart(pod.ref.UID, c.id), dir, maxAge); ok && l.at.After(told.at) {
					mu.Lock()
					defer mu.Unlock()
					layers[c.id] = l
				}
			})
		}
	}
	wg.Wait()
	f.layers = layers
}

// layer counts a writable layer, as containerd does. It is false where it was never counted whole.
func (s *sources) layer(ctx context.Context, p part, dir string, maxAge time.Duration) (layer, bool) {
	r := cellOf(s, s.counted, p).Get(ctx, s.group, maxAge, 2*walkTimeout, func(ctx context.Context) (layer, error) {
		l := layer{at: time.Now(), inodes: true}
		var walkErr error
		if err := s.walk(ctx, func(ctx context.Context) { l.usage, walkErr = disk.Walk(ctx, dir) }); err != nil || walkErr != nil {
			return l, errors.Join(err, walkErr)
		}
		on, err := disk.Stat(dir)
		l.fs = &on
		return l, err
	})
	return r.Value, !r.At.IsZero()
}
