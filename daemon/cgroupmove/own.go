package cgroupmove

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
)

// Own puts this process into the cgroup (kubeletCgroups) before it returns, and puts it back each minute if it is found
// elsewhere, until ctx ends or stop is called. Without a name it does nothing. What the process starts is in its cgroup
// by itself.
func Own(ctx context.Context, name string, log *slog.Logger) (stop func()) {
	if name == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	begun := make(chan struct{})
	keeping.Go(func() {
		begin := sync.OnceFunc(func() { close(begun) })
		defer begin()
		look := onMachine(func(m *machine) error {
			moved, err := m.own(ctx, 0, path.Join("/", name))
			if moved {
				log.Info("moved this process into the cgroup of kubeletCgroups", "cgroup", name)
			}
			return err
		})
		keep(ctx, func() error {
			defer begin()
			return look()
		}, log)
	})
	<-begun
	return func() {
		cancel()
		keeping.Wait()
	}
}

// own moves a daemon's process, 0 for this one, into the cgroup. One that is a service of systemd stays: the limits of
// its unit, and what is ended with it, are its cgroup's. It is where it should be if the cgroup has the unit below it.
func (m *machine) own(ctx context.Context, pid int, cgroup string) (moved bool, err error) {
	p := m.self
	if pid != 0 {
		if p, err = m.proc.Proc(pid); err != nil {
			return false, err
		}
	}
	places, err := m.places(p)
	if err != nil {
		return false, err
	}
	if unit := m.service(places); unit != "" {
		if cgroup == "/" || unit == cgroup || strings.HasPrefix(unit, cgroup+"/") {
			return false, nil
		}
		return false, fmt.Errorf("the process belongs to systemd's unit %s, which it doesn't leave for %s of "+
			"kubeletCgroups: set Slice= in a drop-in of the unit, and name that slice or nothing in kubeletCgroups", unit,
			cgroup)
	}
	if moved, err = m.put(ctx, pid, places, cgroup); err != nil {
		err = fmt.Errorf("move the process %d into the cgroup %s (kubeletCgroups): %w", p.PID, cgroup, err)
	}
	return moved, err
}
