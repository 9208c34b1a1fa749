package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/cleanup"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/subpath"
)

// layout is where the pods' directories are.
type layout string

func (l layout) pods() string { return filepath.Join(string(l), "pods") }

func (l layout) pod(uid string) string { return filepath.Join(l.pods(), uid) }

// outcome is what a worker answers.
type outcome struct {
	pod    *pod
	volume *volume // nil for a clean-up
	op     op
	result plugin.Result
	err    error
}

// job is what a worker does; it answers with the volume's result. It calls alive while it gets on with long work.
type job func(ctx context.Context, alive func()) (plugin.Result, error)

// mountJob sets a volume up or brings it up to date. For a terminating pod it only does the latter.
func (s *Service) mountJob(p *pod, v *volume, stage topic.Lifecycle) job {
	request := plugin.Request{
		Pod: p.update.Pod, Volume: v.spec, Dir: v.dir, Allocatable: s.allocatable, NodeLabels: s.nodeLabels,
		Known: v.result, Ending: stage != topic.Syncing,
	}
	return func(ctx context.Context, alive func()) (plugin.Result, error) {
		if request.Ending && isMissing(request.Dir) {
			return plugin.Result{}, plugin.ErrNotMounted
		}
		request.Calls = calls{service: s, pod: p, volume: v, alive: alive}
		return v.kind.Plugin.Mount(ctx, request)
	}
}

// isMissing reports whether the volume's directory isn't there. What is mounted there isn't touched: its server may not
// answer.
func isMissing(dir string) bool {
	if mounted, err := mountpoint.Mounted(dir); dir == "" || mounted || err != nil {
		return false
	}
	_, err := os.Lstat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

func (s *Service) unmountJob(p *pod, v *volume) job {
	podDir := s.root.pod(p.ref.UID)
	kind, dir := v.place(podDir, s.kinds)
	name, migrated := v.innerName(), v.result.Migrated
	return func(ctx context.Context, _ func()) (plugin.Result, error) {
		if migrated {
			ctx = plugin.Migrated(ctx)
		}
		if err := subpath.Clean(ctx, podDir, name); err != nil {
			return plugin.Result{}, err
		}
		if dir == "" {
			return plugin.Result{}, nil
		}
		return plugin.Result{}, kind.Plugin.Unmount(ctx, dir)
	}
}

// cleanUpJob removes what is left in the pod's volume directories: volumes that the pod's specification doesn't name,
// of an interrupted start or of a pod that nobody knows any more.
func (s *Service) cleanUpJob(p *pod) job {
	podDir := s.root.pod(p.ref.UID)
	return func(ctx context.Context, alive func()) (plugin.Result, error) {
		return plugin.Result{}, cleanup.Pod(ctx, podDir, s.kinds, alive)
	}
}
