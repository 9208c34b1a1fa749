package iscsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"kubelot.dev/services/volume/internal/scsi"
)

// Detach takes the disk of a global directory from the node, in which nothing is mounted any more, and removes the
// directory. It may be repeated at any time.
func (c *Disks) Detach(ctx context.Context, global string) error {
	d, err := Read(global)
	if err != nil {
		return err
	}
	giveBack, err := c.targets.Take(ctx, d.Iqn)
	if err != nil {
		return err
	}
	defer giveBack()
	// What can't be taken away goes with the session, of which the next try makes sure.
	failed := c.removeDevices(ctx, d)
	a := &admin{programs: &c.programs, disk: d, limit: longest}
	portals, err := c.idle(d, global)
	if err != nil {
		return fmt.Errorf("iscsi: find the disks that need the session with %s: %w", d.Iqn, err)
	}
	for _, portal := range portals {
		// Without the program nobody has logged in.
		if err := a.logout(ctx, portal); err != nil && !errors.Is(err, errNoProgram) {
			return errors.Join(fmt.Errorf("iscsi: failed to detach disk: %w", err), failed)
		}
	}
	if failed != nil {
		return fmt.Errorf("iscsi: failed to detach disk: %w", failed)
	}
	if d.cloned() {
		_, err := a.run(ctx, "iface", "-I", d.Iface, "-o", "delete")
		if err := passes(err, sessionNotFound, nothingFound); err != nil && !errors.Is(err, errNoProgram) {
			return fmt.Errorf("iscsi: failed to delete iface: %w", err)
		}
	}
	return scsi.Forget(global, recordName)
}

// removeDevices takes the disk's devices away, and before that the multipath device of which they are paths.
func (c *Disks) removeDevices(ctx context.Context, d Disk) error {
	if c.others(d) {
		return nil
	}
	disks, err := c.sys.disks(d.Iqn, d.Lun)
	if err == nil {
		err = c.sys.Flush(ctx, &c.programs, disks)
	}
	if err == nil { // else its paths are needed for the next try
		err = c.sys.Delete(disks)
	}
	return err
}

// globals are the global directories of both kinds.
func (c *Disks) globals() ([]string, error) {
	mounted, err := Globals(c.root, false)
	if err != nil {
		return nil, err
	}
	devices, err := Globals(c.root, true)
	return append(mounted, devices...), err
}

// others reports whether more than one global directory is of the disk: somebody has it as a device too, or uses it by
// way of another interface.
func (c *Disks) others(d Disk) bool {
	all, err := c.globals()
	if err != nil {
		return true
	}
	count := 0
	for _, global := range all {
		if strings.HasSuffix(filepath.Base(global), "-"+d.Iqn+lunInfix+d.Lun) {
			count++
		}
	}
	return count > 1
}

// idle are the portals of the disk by way of which no other disk is used.
func (c *Disks) idle(d Disk, global string) ([]string, error) {
	all, err := c.globals()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, other := range all {
		o, err := Read(other)
		if other == global || err != nil || o.Iqn != d.Iqn || o.Iface != d.Iface {
			continue
		}
		for _, portal := range o.Portals {
			used[portal] = true
		}
	}
	var idle []string
	for _, portal := range d.Portals {
		if !used[portal] {
			used[portal] = true
			idle = append(idle, portal)
		}
	}
	return idle, nil
}
