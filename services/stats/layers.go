package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/disk"
)

// layerDirs are the directories that hold the writable layers, by container ID. They are known where the runtime mounts
// an overlay at <ID>/rootfs, as containerd does.
func (s *sources) layerDirs() (map[string]string, error) {
	file, err := os.Open(s.mounts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return upperDirs(file)
}

// upperDirs are the upper directories of the overlays in a mountinfo file that are mounted at <ID>/rootfs, by the ID.
func upperDirs(file io.Reader) (map[string]string, error) {
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

// recount counts the writable layers whose figures of the runtime are older than the caller allows. containerd's may be
// 10 s old, and gc would evict the wrong pod by them. The runtime's figure stays if a layer can't be counted in time,
// or if it can't be counted whole and the count is less.
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
			p, dir := layerPart(pod.ref.UID, c.id), dirs[c.id]
			if known && !told.at.Before(oldest) {
				a.sources.note(p, nil)
				continue
			}
			if dir == "" {
				continue
			}
			wg.Go(func() {
				l, ok := a.sources.layer(ctx, p, dir, maxAge)
				if ok && l.at.After(told.at) && (l.err == nil || l.usage.Bytes > told.usage.Bytes) {
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

// layer counts a writable layer, as containerd does. If a part of it can't be read, the rest counts as its usage, at
// least.
func (s *sources) layer(ctx context.Context, p part, dir string, maxAge time.Duration) (layer, bool) {
	r := cellOf(s, s.counted, p).Get(ctx, s.group, maxAge, 2*walkTimeout, func(ctx context.Context) (layer, error) {
		l := layer{at: time.Now(), inodes: true}
		on, err := disk.Stat(dir)
		if err != nil {
			return l, err
		}
		l.fs = &on
		err = s.walk(ctx, func(ctx context.Context) { l.usage, l.err = disk.Walk(ctx, dir) })
		return l, err
	})
	s.note(p, r.Value.err) // to be slow, or gone with its container, is no lasting problem
	return r.Value, !r.At.IsZero()
}

// keepLayers forgets the pod's writable layers, except those of the containers that are there.
func (s *sources) keepLayers(uid string, there []topic.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.counted {
		if p.uid == uid && !slices.ContainsFunc(there, func(c topic.Container) bool { return p == layerPart(uid, c.ID) }) {
			delete(s.counted, p)
			delete(s.problems, p)
		}
	}
}
