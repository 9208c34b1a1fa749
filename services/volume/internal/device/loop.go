package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loopTries is how often a free loop device is asked for: somebody else may be faster.
const loopTries = 16

// attachLoop makes a loop device of the file, which keeps it open: also through restarts of this daemon.
func attachLoop(path string, readOnly bool) error {
	if device, err := LoopOf(path); err != nil || device != "" {
		return err
	}
	file, readOnly, err := open(path, readOnly)
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	defer func() { _ = file.Close() }()
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	if readOnly {
		config.Info.Flags = unix.LO_FLAGS_READ_ONLY
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
	for range loopTries {
		if err = attachFree(&config); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("hold the device %s by a loop device: %w", path, err)
	}
	return nil
}

// open opens the file to be written to, unless it is read-only or said to be.
func open(path string, readOnly bool) (*os.File, bool, error) {
	if !readOnly {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if !errors.Is(err, unix.EROFS) {
			return file, false, err
		}
	}
	file, err := os.OpenFile(path, os.O_RDONLY, 0)
	return file, true, err
}

// attachFree uses the first loop device that is free.
func attachFree(config *unix.LoopConfig) error {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return err
	}
	loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = loop.Close() }()
	return unix.IoctlLoopConfigure(int(loop.Fd()), config)
}

// detachLoop frees the loop device of the file, if it has one. A loop device that is in use goes when it no longer is.
func detachLoop(path string) error {
	device, err := LoopOf(path)
	if err != nil || device == "" {
		return err
	}
	loop, err := os.OpenFile(device, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open the loop device of %s: %w", path, err)
	}
	defer func() { _ = loop.Close() }()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("free the loop device %s of %s: %w", device, path, err)
	}
	return nil
}

// LoopOf is the loop device that was made of the file; empty where there is none.
func LoopOf(path string) (string, error) {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
			continue // freed meanwhile
		}
		if err != nil {
			return "", err
		}
		if backing := strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)"); backing == path {
			return filepath.Join("/dev", strings.Split(file, "/")[3]), nil
		}
	}
	return "", nil
}
