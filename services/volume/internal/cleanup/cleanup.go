// Package cleanup removes what the workers of a pod's volumes have left in its directories.
//
// Reads: the table of mounts. Writes: what is below volumes, volumeDevices and volume-subpaths in a pod's directory.
// Owns nothing.
//
// Guarantees: each volume is taken away by its own kind. Of a kind that kubelot doesn't have only what is empty goes. A
// volume that hangs holds up no other of its kind.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/subpath"
)

// Pod removes what is in the directories of the pod's volumes. It calls alive whenever it gets on.
func Pod(ctx context.Context, podDir string, kinds plugin.List, alive func()) error {
	if err := subpath.Clean(ctx, podDir, ""); err != nil {
		return err
	}
	return errors.Join(empty(ctx, podDir, kinds, false, alive), empty(ctx, podDir, kinds, true, alive))
}

// empty empties the pod's directory of volumes, or of those that are block devices.
func empty(ctx context.Context, podDir string, kinds plugin.List, block bool, alive func()) error {
	top := filepath.Join(podDir, plugin.VolumesDir)
	if block {
		top = filepath.Join(podDir, plugin.DevicesDir)
	}
	dirs, err := mounts.Names(top)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		kind, known := kinds.ByDir(dir, block)
		if !known {
			kind = plugin.Kind{Name: strings.ReplaceAll(dir, "~", "/"), Plugin: foreign{}}
		}
		errs = append(errs, emptyKind(ctx, filepath.Join(top, dir), kind, alive))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeEmpty(top)
}

// atOnce is how many volumes of a kind are unmounted side by side: one that hangs must not hold up the others.
const atOnce = 16

func emptyKind(ctx context.Context, dir string, kind plugin.Kind, alive func()) error {
	volumes, err := mounts.Names(dir)
	if err != nil {
		return err
	}
	errs := make([]error, len(volumes))
	slots := make(chan struct{}, atOnce)
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

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the emptied directory: %w", err)
	}
	return nil
}
