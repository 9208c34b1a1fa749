package persistent

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

// Leftovers frees the disks below rootDir that are mounted or held and that no pod has any more: somebody was killed
// between taking a volume from its last pod and freeing the disk.
func (c claims) Leftovers(ctx context.Context) error {
	l := c.local
	disks, err := mounts.Names(l.mountPoint(""))
	if err != nil {
		return err
	}
	var errs []error
	for _, volume := range disks {
		errs = append(errs, l.locked(ctx, volume, func() error { return l.unmountUnused(ctx, volume) }))
	}
	mapped, err := mounts.Names(filepath.Join(l.root, "plugins", localDir, plugin.DevicesDir))
	errs = append(errs, err)
	for _, volume := range mapped {
		errs = append(errs, l.locked(ctx, volume, func() error { return l.unmapUnused(volume) }))
	}
	return errors.Join(errs...)
}

func (l *local) locked(ctx context.Context, volume string, do func() error) error {
	giveBack, err := l.volumes.Take(ctx, volume)
	if err != nil {
		return err
	}
	defer giveBack()
	return do()
}

// unmapUnused frees a disk for the pods that have no link to it.
func (l *local) unmapUnused(volume string) error {
	mapped, err := mounts.Names(l.deviceMap(volume))
	if err != nil {
		return err
	}
	users, err := l.users(volume, true)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range mapped {
		if !slices.Contains(users, uid) {
			errs = append(errs, l.unmap(volume, uid))
		}
	}
	return errors.Join(errs...)
}
