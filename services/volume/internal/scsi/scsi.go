// Package scsi is what disks of the network have in common, whatever brings them to the node: the kernel's view of them
// in sysfs, the multipath devices that they are paths of, and the records that kubelot keeps of them.
//
// Reads: /sys, /dev, and directories and records that its callers name. Writes: the files of sysfs that look for disks
// and take them away, and the records. Owns nothing.
//
// Guarantees: a directory goes only when it is empty, and a record is whole or isn't there.
package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"kubelot.dev/bus/pause"
	"kubelot.dev/services/volume/internal/program"
)

const (
	// flushLimit is how long multipath may take to give up a device.
	flushLimit = 30 * time.Second
	// look is the pause between two looks for a device.
	look = 200 * time.Millisecond
	// multipathPrefix begins the names of devices of the device mapper.
	multipathPrefix = "dm-"
)

// Places are where the node shows its devices.
type Places struct {
	// Sys is sysfs, Dev the directory of devices, ByPath that of links to disks by the way to them, and ByID that of links
	// by what the disks call themselves.
	Sys, Dev, ByPath, ByID string
}

// OfNode are the places of every node.
var OfNode = Places{Sys: "/sys", Dev: "/dev", ByPath: "/dev/disk/by-path", ByID: "/dev/disk/by-id"}

// Path is a path in sysfs.
func (p Places) Path(parts ...string) string {
	return filepath.Join(append([]string{p.Sys}, parts...)...)
}

// Scan has the kernel look for disks of a SCSI host: a channel, a target and a LUN, of which each may be "-" for all.
func (p Places) Scan(host, what string) error {
	return tell(p.Path("class", "scsi_host", host, "scan"), what)
}

// Multipath is the name of the device that has the disk as one of its ways, such as dm-0; empty where there is none. A
// logical volume or an encrypted device on the disk is a device of the mapper too, but no multipath device.
func (p Places) Multipath(disk string) string {
	maps, _ := Entries(p.Path("block"), multipathPrefix) // none where they can't be read
	for _, dir := range maps {
		id, _ := os.ReadFile(filepath.Join(dir, "dm", "uuid"))
		_, err := os.Lstat(filepath.Join(dir, "slaves", disk))
		if err == nil && strings.HasPrefix(string(id), "mpath-") {
			return filepath.Base(dir)
		}
	}
	return ""
}

// IsMultipath reports whether a device of that name is one of several ways, as far as its name says.
func IsMultipath(device string) bool { return strings.HasPrefix(device, multipathPrefix) }

// Ways are the disks that a multipath device consists of; of another device, it is the device itself.
func (p Places) Ways(device string) ([]string, error) {
	if !IsMultipath(device) {
		return []string{device}, nil
	}
	ways, err := Entries(p.Path("block", device, "slaves"), "")
	for i := range ways {
		ways[i] = filepath.Base(ways[i])
	}
	return ways, err
}

// Flush takes the multipath devices of the disks away.
func (p Places) Flush(ctx context.Context, programs *program.Runner, disks []string) error {
	var errs []error
	flushed := map[string]bool{"": true}
	for _, disk := range disks {
		if m := p.Multipath(disk); !flushed[m] {
			flushed[m] = true
			errs = append(errs, p.flush(ctx, programs, m))
		}
	}
	return errors.Join(errs...)
}

func (p Places) flush(ctx context.Context, programs *program.Runner, device string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, flushLimit, fmt.Errorf("it has not ended within %s", flushLimit))
	defer cancel()
	path := filepath.Join(p.Dev, device)
	out, err := programs.Run(ctx, program.Command{About: path, Name: "multipath", Args: []string{"-f", path}})
	if err != nil {
		return fmt.Errorf("flush the multipath device %s: %w: %s", path, err, out)
	}
	return nil
}

// Delete takes disks away, such as sdb. Nobody uses them.
func (p Places) Delete(disks []string) error {
	var errs []error
	for _, disk := range disks {
		err := tell(p.Path("block", disk, "device", "delete"), "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Entries are the paths of the entries of a directory whose names have the prefix; none where there is no directory.
func Entries(dir, prefix string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// Within asks until the answer is yes. The last time is after the limit, however long the machine has stood still.
func Within(ctx context.Context, limit time.Duration, is func() bool) bool {
	for begin := time.Now(); ; pause.For(ctx, look) {
		over := time.Since(begin) >= limit || ctx.Err() != nil
		if is() {
			return true
		}
		if over {
			return false
		}
	}
}

func tell(path, what string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(what)
	return errors.Join(err, file.Close())
}

// maxName is the length of what Nameable takes, in bytes. The names of iSCSI have at most 223.
const maxName = 1 << 10

// Nameable reports whether a text of a pod's or volume's specification can be part of a disk's name: of one directory,
// and of an entry in the Node's status.
func Nameable(part string) bool {
	return len(part) <= maxName &&
		!strings.ContainsFunc(part, func(r rune) bool { return r == '/' || !unicode.IsPrint(r) })
}
