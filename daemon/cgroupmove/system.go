package cgroupmove

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sweeps is how often the processes are listed and moved at a time: some are started meanwhile. The kubelet tries as
// often.
const sweeps = 11

// System moves the processes of the machine that are in no cgroup into the named one (systemCgroups), now and each
// minute, until ctx ends. Without a name it does nothing.
func System(ctx context.Context, name string, log *slog.Logger) {
	cgroup := path.Join("/", name)
	switch {
	case name == "":
		return
	case cgroup == "/":
		log.Error("systemCgroups names the root, where the processes are: name another cgroup; none is moved")
		return
	}
	keep(ctx, onMachine(func(m *machine) error {
		moved, err := m.sweep(ctx, cgroup)
		if moved > 0 {
			log.Info("moved processes into the cgroup of systemCgroups", "cgroup", cgroup, "processes", moved)
		}
		return err
	}), log)
}

// sweep moves all loose processes into the cgroup. The error is that of the last try.
func (m *machine) sweep(ctx context.Context, cgroup string) (moved int, err error) {
	for range sweeps {
		var loose []int
		if loose, err = m.loose(); len(loose) == 0 && err == nil || ctx.Err() != nil {
			return moved, err
		}
		for _, pid := range loose {
			// It may have moved since: a daemon of ours to where it belongs.
			places, now := m.isLoose(pid)
			if !now {
				continue
			}
			done, putErr := m.put(ctx, pid, places, cgroup)
			if putErr != nil {
				err = fmt.Errorf("move the process %d into the cgroup %s (systemCgroups): %w", pid, cgroup, putErr)
			}
			if done && putErr == nil {
				moved++
			}
		}
	}
	return moved, err
}

// loose are the processes that are in no cgroup. With version 1 it is the hierarchy of the devices that says so, as for
// the kubelet: each process that a runtime or a service manager has put anywhere has a cgroup there.
func (m *machine) loose() ([]int, error) {
	i := slices.IndexFunc(m.trees, func(t tree) bool { return t.has("devices") && m.counts(&t) })
	if i < 0 {
		return nil, errors.New("find processes without a cgroup: the cgroup controller devices is not mounted: mount it at " +
			mountPoint + "/devices")
	}
	data, err := os.ReadFile(filepath.Join(m.trees[i].dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("find processes without a cgroup: %w", err)
	}
	var loose []int
	for word := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("find processes without a cgroup: %w", err)
		}
		if _, is := m.isLoose(pid); is {
			loose = append(loose, pid)
		}
	}
	return loose, nil
}

// counts reports whether a process's place in the tree says that it is in a cgroup. On a machine with
// version 1 a hierarchy of version 2 says nothing.
func (m *machine) counts(t *tree) bool {
	if len(t.controllers) == 0 {
		return len(m.trees) == 1
	}
	return t.has("devices") || t.has(systemdTree)
}

// isLoose reports whether the process is one of a program, not process 1, and in no cgroup. It also returns its places.
// 0 stands for processes that can't be seen from here.
func (m *machine) isLoose(pid int) ([]string, bool) {
	if pid <= 1 {
		return nil, false
	}
	p, err := m.proc.Proc(pid)
	if err != nil {
		return nil, false // it has ended
	}
	// A thread of the kernel has no executable, and neither has a process that has ended.
	if program, err := p.Executable(); program == "" && err == nil {
		return nil, false
	}
	places, err := m.places(p)
	if err != nil {
		return nil, false // it has ended
	}
	for i := range m.trees {
		if m.counts(&m.trees[i]) && places[i] != "/" {
			return nil, false
		}
	}
	return places, true
}
