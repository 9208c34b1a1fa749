package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kubelot.dev/services/volume/internal/mounts"
)

// Map is where a pod's device is.
type Map struct {
	// Link is what the runtime gets. Point is a file that the device is bound to and that a loop device holds, whatever
	// the device's path means later.
	Link, Point string
}

// Make makes the link to the disk, and holds the disk. All of it may be there already.
func (m Map) Make(disk string, readOnly bool) error {
	if err := m.MakeLink(disk); err != nil {
		return err
	}
	mounted, err := mounts.Mounted(m.Point)
	if err == nil && !mounted {
		err = m.bind(disk)
	}
	if err != nil {
		return err
	}
	return attachLoop(m.Point, readOnly)
}

// MakeLink makes the link alone. What it names needn't exist yet.
func (m Map) MakeLink(disk string) error {
	if target, err := os.Readlink(m.Link); err == nil && target == disk {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(m.Link), 0o750); err != nil {
		return err
	}
	if err := os.Remove(m.Link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(disk, m.Link)
}

func (m Map) bind(disk string) error {
	if err := os.MkdirAll(filepath.Dir(m.Point), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(m.Point, os.O_CREATE|os.O_WRONLY, 0o750)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := unix.Mount(disk, m.Point, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the device %s at %s: %w", disk, m.Point, err)
	}
	return nil
}

// Made reports whether the pod has the device.
func (m Map) Made() (bool, error) {
	if _, err := os.Readlink(m.Link); err != nil {
		return false, nil //nolint:nilerr // then it is made
	}
	return mounts.Mounted(m.Point)
}

// Release lets go of the disk. The link stays: by it the volume is found again as long as something of it is left.
func (m Map) Release() error {
	if err := detachLoop(m.Point); err != nil {
		return err
	}
	if err := mounts.UnmountAndRemove(m.Point); err != nil {
		return err
	}
	return RemoveEmpty(filepath.Dir(m.Point))
}

// RemoveLink is the end of it.
func (m Map) RemoveLink() error {
	if err := os.Remove(m.Link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveEmpty removes a directory in which nothing is left.
func RemoveEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// IsDisk distinguishes a block device from a directory; anything else is an error.
func IsDisk(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return false, err
	case info.IsDir():
		return false, nil
	case info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0:
		return true, nil
	}
	return false, errWrongType
}

var errWrongType = errors.New("only directory and block device are supported")
