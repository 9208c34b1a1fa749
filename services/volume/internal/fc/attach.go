package fc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/program"
	"kubelot.dev/services/volume/internal/scsi"
)

const (
	// deviceWait is how long a disk may take to appear after the kernel was told to look for it, multipathWait how long
	// multipathd may take to join the ways to it.
	deviceWait    = 10 * time.Second
	multipathWait = 5 * time.Second
	// scanLimit is how long one host of SCSI may look for disks.
	scanLimit = 30 * time.Second
)

// Disks attaches and detaches disks. The zero value isn't ready.
type Disks struct {
	// DeviceWait and MultipathWait are how long a device is waited for.
	DeviceWait, MultipathWait time.Duration

	root     string
	at       scsi.Places
	programs program.Runner
	// changes are locked while a disk is put on record, and while one is taken away that another record may name.
	changes plugin.Locks
}

// NewDisks are the disks of the kubelet's root directory.
func NewDisks(root string, at scsi.Places) *Disks {
	return &Disks{root: root, at: at, DeviceWait: deviceWait, MultipathWait: multipathWait}
}

// Attach finds the disk, and answers with its device: the multipath device where there is one. The record of it comes
// first. It calls alive while it gets on.
func (c *Disks) Attach(ctx context.Context, d Disk, global string, alive func()) (string, error) {
	if err := c.record(ctx, d, global); err != nil {
		return "", fmt.Errorf("fc: record the disk: %w", err)
	}
	device, err := c.device(d)
	if err == nil && !scsi.IsMultipath(device) {
		// There may be other ways to it.
		device, err = c.lookFor(ctx, d, alive)
	}
	if err != nil {
		return "", err
	}
	return filepath.Join(c.at.Dev, device), nil
}

func (c *Disks) record(ctx context.Context, d Disk, global string) error {
	giveBack, err := c.changes.Take(ctx, Name)
	if err != nil {
		return err
	}
	defer giveBack()
	return scsi.Record(global, d)
}

// lookFor has the kernel look for disks, and waits for this one.
func (c *Disks) lookFor(ctx context.Context, d Disk, alive func()) (device string, err error) {
	scanErr := c.scan(ctx, alive)
	is := func(enough func(string) bool) func() bool {
		return func() bool {
			alive()
			device, err = c.device(d)
			return err != nil || enough(device)
		}
	}
	scsi.Within(ctx, c.DeviceWait, is(func(device string) bool { return device != "" }))
	if err == nil && device == "" {
		err = errors.Join(fmt.Errorf("no fc disk found: %s shows none: does the fabric let this node see the disk, and has "+
			"its target this LUN?", c.where(d)), scanErr, context.Cause(ctx))
	}
	if err != nil {
		return "", err
	}
	if _, joins := os.Stat(c.at.Path("module", "dm_multipath")); joins == nil {
		scsi.Within(ctx, c.MultipathWait, is(scsi.IsMultipath))
	}
	return device, err
}

// scan has the hosts of fibre channel look for disks; all hosts of SCSI where the kernel knows none. One that waits for
// a sick fabric is a process of its own.
func (c *Disks) scan(ctx context.Context, alive func()) error {
	hosts, err := scsi.Entries(c.at.Path("class", "fc_host"), "host")
	if err == nil && len(hosts) == 0 {
		hosts, err = scsi.Entries(c.at.Path("class", "scsi_host"), "host")
	}
	errs := []error{err}
	for _, host := range hosts {
		alive()
		file := c.at.Path("class", "scsi_host", filepath.Base(host), "scan")
		limited, cancel := context.WithTimeoutCause(ctx, scanLimit, fmt.Errorf("it has not ended within %s", scanLimit))
		out, err := c.programs.Run(limited, program.Command{
			About: file, Name: "sh", Args: []string{"-c", `echo "- - -" >"$1"`, "sh", file},
		})
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("look for disks by %s: %w: %s", file, err, out))
		}
	}
	return errors.Join(errs...)
}

// where is where the disk would be, for an error.
func (c *Disks) where(d Disk) string {
	if len(d.WWNs) > 0 {
		return fmt.Sprintf("%s/*-fc-0x%s%s%s", c.at.ByPath, strings.Join(d.WWNs, "|"), lunInfix, d.Lun)
	}
	return fmt.Sprintf("%s/scsi-%s", c.at.ByID, strings.Join(d.WWIDs, "|"))
}

// device is the device of the disk, such as dm-0 or sdb; empty while there is none. The names count in their order, and
// a multipath device before a single way.
func (c *Disks) device(d Disk) (string, error) {
	dir, names, is := c.at.ByPath, d.WWNs, d.isByPath
	if len(names) == 0 {
		dir, names, is = c.at.ByID, d.WWIDs, isByID
	}
	links, err := scsi.Entries(dir, "")
	if err != nil {
		return "", err
	}
	first := ""
	for _, name := range names {
		for _, link := range links {
			// A link that leads nowhere is of a disk that goes.
			path, err := filepath.EvalSymlinks(link)
			if err != nil || !is(filepath.Base(link), name) {
				continue
			}
			device := filepath.Base(path)
			if m := c.at.Multipath(device); m != "" {
				device = m
			}
			if scsi.IsMultipath(device) {
				return device, nil
			}
			if first == "" {
				first = device
			}
		}
	}
	return first, nil
}

// isByPath reports whether a link is a way to the disk by the target of that name: by an adapter of the PCI bus, or one
// without.
func (d Disk) isByPath(link, wwn string) bool {
	way := "fc-0x" + strings.ToLower(wwn) + lunInfix + d.Lun
	return link == way || strings.HasPrefix(link, "pci-") && strings.HasSuffix(link, "-"+way)
}

func isByID(link, id string) bool { return link == "scsi-"+id }

// Detach takes the disk of a global directory from the node, in which nothing is mounted any more, and removes the
// directory. A disk that somebody else uses stays. It may be repeated at any time.
func (c *Disks) Detach(ctx context.Context, global string) error {
	d, err := Read(global)
	if err != nil {
		return err
	}
	giveBack, err := c.changes.Take(ctx, Name)
	if err != nil {
		return err
	}
	defer giveBack()
	device, err := c.device(d)
	if err == nil && device != "" {
		err = c.remove(ctx, device, global)
	}
	if err != nil {
		return fmt.Errorf("fc: failed to detach disk: %w", err)
	}
	return scsi.Forget(global)
}

// remove takes a device away that only the global directory is for.
func (c *Disks) remove(ctx context.Context, device, global string) error {
	ways, err := c.at.Ways(device)
	if err != nil {
		return err
	}
	needed, err := c.isAnothers(ways, global)
	if err != nil || needed {
		return err
	}
	// The node may use a disk itself, such as the one it has booted from.
	if users, err := c.at.Users(append(slices.Clone(ways), device)); err != nil || len(users) > 0 {
		return err
	}
	if err := c.at.Flush(ctx, &c.programs, ways); err != nil {
		return err // its ways are needed for the next try
	}
	return c.at.Delete(ways)
}

// isAnothers reports whether a record of another global directory leads to one of the ways: pods have the disk as a
// device too, or by another volume.
func (c *Disks) isAnothers(ways []string, global string) (bool, error) {
	for _, block := range []bool{false, true} {
		all, err := Globals(c.root, block)
		if err != nil {
			return false, err
		}
		for _, other := range all {
			if other == global {
				continue
			}
			d, err := Read(other)
			device := ""
			if err == nil {
				device, err = c.device(d)
			}
			var its []string
			if err == nil && device != "" {
				its, err = c.at.Ways(device)
			}
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(its, func(way string) bool { return slices.Contains(ways, way) }) {
				return true, nil
			}
		}
	}
	return false, nil
}
