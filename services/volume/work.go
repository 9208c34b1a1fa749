package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/subpath"
)

// layout is where the pods' directories are.
type layout string

func (l layout) pods() string { return filepath.Join(string(l), "pods") }

func (l layout) pod(uid string) string { return filepath.Join(l.pods(), uid) }

// errNotMounted says that a volume of a terminating pod isn't there; it isn't set up any more.
var errNotMounted = errors.New("the volume was not set up before the pod began to terminate")

// outcome is what a worker answers.
type outcome struct {
	pod    *pod
	volume *volume // nil for a sweep
	op     op
	result plugin.Result
	err    error
}

// job is what a worker does; it answers with the volume's result.
type job func(ctx context.Context) (plugin.Result, error)

// mountJob sets a volume up or brings it up to date. For a terminating pod it only does the latter.
func (s *Service) mountJob(p *pod, v *volume, stage topic.Lifecycle) job {
	request := plugin.Request{Pod: p.update.Pod, Volume: v.spec, Dir: v.dir, Allocatable: s.allocatable}
	return func(ctx context.Context) (plugin.Result, error) {
		if stage != topic.Syncing && request.Dir != "" {
			if _, err := os.Lstat(request.Dir); errors.Is(err, fs.ErrNotExist) {
				return plugin.Result{}, errNotMounted
			}
		}
		return v.kind.Plugin.Mount(ctx, request)
	}
}

func (s *Service) unmountJob(p *pod, v *volume) job {
	podDir := s.root.pod(p.ref.UID)
	return func(ctx context.Context) (plugin.Result, error) {
		if err := subpath.Clean(ctx, podDir, v.spec.Name); err != nil {
			return plugin.Result{}, err
		}
		if v.dir == "" {
			return plugin.Result{}, nil
		}
		return plugin.Result{}, v.kind.Plugin.Unmount(ctx, v.dir)
	}
}

// sweepJob removes whatever is left in the pod's volume directories: volumes that the pod's
// spec doesn't name, of an interrupted start or of a pod that nobody knows any more.
func (s *Service) sweepJob(p *pod) job {
	podDir := s.root.pod(p.ref.UID)
	return func(ctx context.Context) (plugin.Result, error) { return plugin.Result{}, sweep(ctx, podDir, s.kinds) }
}

func sweep(ctx context.Context, podDir string, kinds plugin.List) error {
	if err := subpath.Clean(ctx, podDir, ""); err != nil {
		return err
	}
	top := filepath.Join(podDir, "volumes")
	dirs, err := names(top)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, sweepKind(ctx, top, dir, kinds))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeEmpty(top)
}

func sweepKind(ctx context.Context, top, dir string, kinds plugin.List) error {
	volumes, err := names(filepath.Join(top, dir))
	if err != nil {
		return err
	}
	kind, known := kinds.ByDir(dir)
	for _, name := range volumes {
		path := filepath.Join(top, dir, name)
		if known {
			err = kind.Plugin.Unmount(ctx, path)
		} else {
			err = removeForeign(dir, path)
		}
		if err != nil {
			return err
		}
	}
	return removeEmpty(filepath.Join(top, dir))
}

// removeForeign removes an empty directory that another kubelet made for a kind of volume that kubelot doesn't
// have. It unmounts nothing: that needs the steps of the kind's own driver.
func removeForeign(kind, path string) error {
	points, err := mounts.Below(path)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("%s is a mounted volume of the kind %s, which kubelot can't unmount; unmount it with the driver that mounted it",
			path, strings.ReplaceAll(kind, "~", "/"))
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
