package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/pause"
	"kubelot.dev/cri/cgroupname"
)

// How long Destroy waits between two tries: a killed process takes a moment to leave its cgroup.
const (
	retryFirst = 2 * time.Millisecond
	retryMax   = 100 * time.Millisecond
	// destroyPatience bounds a Destroy whose caller has more time than that; tests have their own.
	destroyPatience = 5 * time.Second
)

// Exists reports whether anything is left of the pod's cgroup.
func (m *Manager) Exists(uid types.UID) bool {
	for _, dir := range m.podDirs(uid) {
		if _, err := os.Lstat(dir); err == nil {
			return true
		}
	}
	return false
}

// Destroy kills what still runs in the pod's cgroup and removes it, in whichever QoS class it is.
// It is no error if there is none. It waits up to 5 s for killed processes to go.
func (m *Manager) Destroy(ctx context.Context, uid types.UID) error {
	if !m.cfg.PerQOS {
		return nil
	}
	dirs := slices.DeleteFunc(m.podDirs(uid), func(dir string) bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(dirs) == 0 {
		return nil
	}
	defer m.timed("destroy")()
	if m.driver == driverSystemd {
		m.stopSlice(uid)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.patience, fmt.Errorf("it was still busy after %s", m.patience))
	defer cancel()
	for tries := 1; ; tries++ {
		var errs []error
		for _, dir := range dirs {
			errs = append(errs, remove(dir))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		for _, dir := range dirs {
			kill(dir)
		}
		if pause.For(ctx, pause.After(tries, retryFirst, retryMax)); ctx.Err() != nil {
			return fmt.Errorf("remove the cgroup of pod %s: %w: %w", uid, context.Cause(ctx), err)
		}
	}
}

// stopSlice tells systemd to let go of the pod's slice. Its failure shows when the directories are removed.
func (m *Manager) stopSlice(uid types.UID) {
	part, err := cgroupname.PodPart(string(uid))
	if err != nil {
		return
	}
	for _, class := range m.classes() {
		n := class.Child(part)
		for _, dir := range m.paths(n) {
			if _, err := os.Lstat(dir); err != nil {
				continue
			}
			if lib, err := m.library(n, Limits{}); err == nil {
				lib.Destroy() //nolint:errcheck // see above
			}
			break
		}
	}
}

// List are the pod cgroups that exist in any hierarchy, as UID and cgroup path.
func (m *Manager) List() (map[types.UID]string, error) {
	found := map[types.UID]string{}
	if !m.cfg.PerQOS {
		return found, nil
	}
	for _, mount := range m.mounts {
		for _, class := range m.classes() {
			entries, err := os.ReadDir(filepath.Join(mount, m.path(class)))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list pod cgroups: %w", err)
			}
			for _, e := range entries {
				if uid, ok := m.podUID(class, e.Name()); ok && e.IsDir() {
					found[uid] = filepath.Join(m.path(class), e.Name())
				}
			}
		}
	}
	return found, nil
}

// remove removes a cgroup and those below it, leaves first.
func remove(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return readErr
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// kill kills the processes in a cgroup and below it. Those that can't be killed show as a cgroup that
// can't be removed.
func kill(dir string) {
	pids, err := cgroups.GetAllPids(dir)
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, pid := range pids {
		// 0 stands for a process outside our PID namespace.
		if pid > 1 && pid != self {
			unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // see above
		}
	}
}
