package cgroupmove

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/bus/pause"
)

// A process that is being made can't be moved yet, which the kernel says by EINVAL.
const (
	putTries = 5
	putPause = 30 * time.Millisecond
)

// put makes the cgroup in all trees in which the process has another place, and moves the process there. The process 0
// is this one.
func (m *machine) put(ctx context.Context, pid int, places []string, cgroup string) (moved bool, err error) {
	var errs []error
	for i := range m.trees {
		if places[i] == cgroup {
			continue
		}
		if err := m.trees[i].put(ctx, pid, cgroup); err != nil {
			errs = append(errs, err)
			continue
		}
		moved = true
	}
	return moved, errors.Join(errs...)
}

// put moves the process. It is no error if the process has ended.
func (t *tree) put(ctx context.Context, pid int, cgroup string) error {
	if err := t.create(cgroup); err != nil {
		return err
	}
	file := filepath.Join(t.dir, cgroup, "cgroup.procs")
	err := write(file, strconv.Itoa(pid))
	for try := 1; try < putTries && errors.Is(err, unix.EINVAL); try++ {
		pause.For(ctx, putPause)
		err = write(file, strconv.Itoa(pid))
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EBUSY) && len(t.controllers) == 0:
		return fmt.Errorf("%w: cgroup %s gives controllers to cgroups below it, and in version 2 such a one can't have "+
			"processes itself: name a cgroup without others below it", err, cgroup)
	}
	return err
}

// create makes the cgroup and those above it, and makes them fit for processes.
func (t *tree) create(cgroup string) error {
	dir := t.dir
	for part := range strings.SplitSeq(cgroup, "/") {
		if part == "" {
			continue
		}
		above := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create the cgroup %s: %w", cgroup, err)
		}
		if err := t.inherit(above, dir); err != nil {
			return fmt.Errorf("create the cgroup %s: %w", cgroup, err)
		}
	}
	return nil
}

// inherit gives a cgroup what it has of the one above it.
func (t *tree) inherit(above, dir string) error {
	if len(t.controllers) == 0 {
		enable(above)
		return nil
	}
	if !t.has("cpuset") {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		file := filepath.Join(dir, name)
		has, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(has)) != "" {
			if err != nil {
				return err
			}
			continue
		}
		value, err := os.ReadFile(filepath.Join(above, name))
		if err == nil {
			err = write(file, strings.TrimSpace(string(value)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enable gives the cgroups below dir all controllers that dir has. One that can't be given, such as to cgroups below
// one with processes, is no error: the move doesn't depend on it.
func enable(dir string) {
	words := func(name string) []string {
		data, _ := os.ReadFile(filepath.Join(dir, name)) // without the file there are no controllers
		return strings.Fields(string(data))
	}
	given := words("cgroup.subtree_control")
	for _, controller := range words("cgroup.controllers") {
		if !slices.Contains(given, controller) {
			_ = write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller)
		}
	}
}

// write writes to a file that the kernel has made.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
