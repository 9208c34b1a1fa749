package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mountpoint"
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
		return plugin.Result{}, cleanUp(ctx, podDir, s.kinds, alive)
	}
}

func cleanUp(ctx context.Context, podDir string, kinds plugin.List, alive func()) error {
	if err := subpath.Clean(ctx, podDir, ""); err != nil {
		return err
	}
	return errors.Join(cleanUpTop(ctx, podDir, kinds, false, alive), cleanUpTop(ctx, podDir, kinds, true, alive))
}

// cleanUpTop empties the pod's directory of volumes, or of those that are block devices.
func cleanUpTop(ctx context.Context, podDir string, kinds plugin.List, block bool, alive func()) error {
	top := filepath.Join(podDir, plugin.VolumesDir)
	if block {
		top = filepath.Join(podDir, plugin.DevicesDir)
	}
	dirs, err := names(top)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		kind, known := kinds.ByDir(dir, block)
		if !known {
			kind = plugin.Kind{Name: strings.ReplaceAll(dir, "~", "/"), Plugin: foreign{}}
		}
		errs = append(errs, cleanUpKind(ctx, filepath.Join(top, dir), kind, alive))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeEmpty(top)
}

// cleanUpAtOnce is how many volumes of a kind are unmounted side by side: one that hangs must not hold up the others.
const cleanUpAtOnce = 16

func cleanUpKind(ctx context.Context, dir string, kind plugin.Kind, alive func()) error {
	volumes, err := names(dir)
	if err != nil {
		return err
	}
	errs := make([]error, len(volumes))
	slots := make(chan struct{}, cleanUpAtOnce)
	var workers sync.WaitGroup
	for i, name := range volumes {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			if err := kind.Plugin.Unmount(ctx, filepath.Join(dir, name)); err != nil {
				errs[i] = fmt.Errorf("volume of the kind %s: %w", kind.Name, err)
				return
			}
			alive()
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeEmpty(dir)
}

// foreign are volumes that another kubelet made, of a kind that kubelot doesn't have. Only empty directories are
// removed: the rest needs the steps of the kind's own driver.
type foreign struct{ plugin.Plugin }

func (foreign) Unmount(_ context.Context, path string) error {
	points, err := mountpoint.Below(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(points) > 0 || !info.IsDir() {
		return fmt.Errorf("%s is still in use and kubelot can't unmount it; unmount it with the driver that mounted it", path)
	}
	return removeEmpty(path)
}

// names are the entries of a directory; none where it doesn't exist.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the emptied directory: %w", err)
	}
	return nil
}
