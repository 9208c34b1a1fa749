package iscsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/program"
	"kubelot.dev/services/volume/internal/scsi"
)

// How long and how often a disk with several portals is tried, the kubelet's.
const (
	// enoughPaths are the paths with which a multipath device is useful, if enoughTries were made for all of them.
	enoughPaths, enoughTries = 2, 2
	mostTries                = 5
	deviceWait               = 30 * time.Second
	multipathWait            = 10 * time.Second
	// longest is how long iscsiadm may take: less than a volume's worker, which goes on with the next portal. iscsiadm
	// gives up a login by itself after two minutes, unless its settings say otherwise.
	longest = 90 * time.Second
)

// Disks attaches and detaches disks. The zero value isn't ready.
type Disks struct {
	root     string
	sys      sysfs
	programs program.Runner
	// targets are locked while somebody logs in or out: one disk's end must not be another's.
	targets plugin.Locks
	// deviceWait and multipathWait are how long a device is waited for.
	deviceWait, multipathWait time.Duration
}

// NewDisks are the disks of the kubelet's root directory.
func NewDisks(root string, at scsi.Places) *Disks {
	return &Disks{root: root, sys: sysfs{at}, deviceWait: deviceWait, multipathWait: multipathWait}
}

// Attach logs in to the disk's target where that isn't done, and answers with the disk's device. The record in the
// global directory comes first. It calls alive while it gets on.
func (c *Disks) Attach(ctx context.Context, d Disk, global string, secret map[string]string, alive func(),
) (string, error) {
	if err := d.write(global); err != nil {
		return "", fmt.Errorf("iscsi: record the disk: %w", err)
	}
	a := &admin{programs: &c.programs, disk: d, secret: secret, limit: longest}
	transport, err := a.transport(ctx)
	if err != nil {
		return "", err
	}
	if d.InitiatorName != "" {
		if err := a.clone(ctx); err != nil {
			return "", err
		}
	}
	giveBack, err := c.targets.Take(ctx, d.Iqn)
	if err != nil {
		return "", err
	}
	defer giveBack()
	t := try{Disks: c, admin: a, transport: transport, alive: alive, paths: map[string]string{}}
	if err := t.all(ctx); err != nil {
		return "", err
	}
	return t.device(ctx), nil
}

// try is the try to get a disk by way of all its portals.
type try struct {
	*Disks
	admin     *admin
	transport string
	alive     func()
	// paths are the devices that were found, by portal.
	paths map[string]string
}

// all tries the portals, several times where one of them fails.
func (t *try) all(ctx context.Context) error {
	portals := t.admin.disk.Portals
	for tries := 1; tries <= mostTries; tries++ {
		var last error
		for _, portal := range portals {
			if t.paths[portal] != "" {
				continue
			}
			t.alive()
			path, err := t.portal(ctx, portal)
			if ctx.Err() != nil {
				return errors.Join(err, context.Cause(ctx))
			}
			if t.paths[portal] = path; err != nil {
				last = err
				delete(t.paths, portal)
			}
		}
		switch found := len(t.paths); {
		case found == 0:
			t.admin.unclone(ctx)
			return fmt.Errorf("failed to get any path for iscsi disk, last err seen:\n%w", last)
		case last == nil, found >= enoughPaths && tries >= enoughTries:
			return nil
		}
	}
	return nil
}

// portal gets the disk by way of one portal: the link to its device.
func (t *try) portal(ctx context.Context, portal string) (string, error) {
	d := t.admin.disk
	hosts, err := t.sys.hosts(d.Iqn)
	if err != nil {
		return "", err
	}
	host, in := hosts[portal]
	if !in {
		if err := t.admin.login(ctx, portal); err != nil {
			return "", err
		}
		if hosts, err = t.sys.hosts(d.Iqn); err != nil {
			return "", err
		}
		if host, in = hosts[portal]; !in {
			return "", fmt.Errorf("iscsi: no session with %s by way of portal %s after the login", d.Iqn, portal)
		}
	}
	if err := t.sys.scan(host, d.Lun); err != nil {
		return "", fmt.Errorf("iscsi: look for LUN %s of %s: %w", d.Lun, d.Iqn, err)
	}
	path := ""
	if !scsi.Within(ctx, t.deviceWait, func() bool { path = t.link(portal); return path != "" }) {
		//nolint:staticcheck // the first words are the kubelet's
		return "", fmt.Errorf("Timed out waiting for device at path %s after %s: has the target this LUN, and has this "+
			"initiator access to it?", filepath.Join(t.sys.ByPath, t.suffix(portal)), t.deviceWait)
	}
	return path, nil
}

// suffix is the end of the name of the link to the disk's device.
func (t *try) suffix(portal string) string {
	d := t.admin.disk
	return "ip-" + strings.NewReplacer("[", "", "]", "").Replace(portal) + "-iscsi-" + d.Iqn + lunInfix + d.Lun
}

// link is the link to the disk's device; empty where there is none. It begins with the adapter's address where the
// adapter speaks iSCSI itself.
func (t *try) link(portal string) string {
	suffix := t.suffix(portal)
	links, err := scsi.Entries(t.sys.ByPath, "")
	if err != nil {
		return ""
	}
	for _, path := range links {
		name := filepath.Base(path)
		if t.transport != "tcp" && strings.HasPrefix(name, "pci-") && strings.HasSuffix(name, "-"+suffix) {
			name = suffix
		}
		if name == suffix {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	return ""
}

// device is the multipath device of the paths that were found, or one of them.
func (t *try) device(ctx context.Context) string {
	wait, multipath := time.Duration(0), ""
	if len(t.admin.disk.Portals) > 1 {
		wait = t.multipathWait
	}
	scsi.Within(ctx, wait, func() bool {
		for _, path := range t.paths {
			if disk, err := filepath.EvalSymlinks(path); err == nil && multipath == "" {
				multipath = t.sys.Multipath(filepath.Base(disk))
			}
		}
		return multipath != ""
	})
	if multipath != "" {
		return filepath.Join(t.sys.Dev, multipath)
	}
	for _, portal := range t.admin.disk.Portals {
		if path := t.paths[portal]; path != "" {
			return path
		}
	}
	return ""
}
