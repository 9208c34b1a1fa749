// Package cgroupmove moves processes into the cgroups that the configuration names: the agent's own (kubeletCgroups),
// and those of the machine that are in no cgroup (systemCgroups). docs/adr/0036 has the decisions.
//
// # Reads
//
// /proc/self/mountinfo and /proc/self/cgroup, once; /proc/<pid>/cgroup and /proc/<pid>/exe; cgroup.procs of the root.
//
// # Writes
//
// Directories of cgroups, and cgroup.procs in them. With cgroup version 1 also cpuset.cpus and cpuset.mems where they
// are empty, because nothing can be put into such a cgroup. With version 2 also cgroup.subtree_control of the cgroups
// above, so that the new one has the controllers that there are.
//
// # Guarantees
//
//   - A process that belongs to a service of systemd stays there.
//   - A daemon moves no process but itself; only System moves others.
//   - Process 1 and the kernel's threads are never moved.
//   - Nothing is removed: a cgroup stays when its processes have ended.
package cgroupmove

import (
	"context"
	"log/slog"
	"time"

	"kubelot.dev/bus/pause"
)

// lookEvery is how often it is seen where the processes are. The kubelet looks as often.
const lookEvery = time.Minute

// onMachine has work done with the machine's hierarchies, which are found once.
func onMachine(work func(*machine) error) (look func() error) {
	var m *machine
	return func() (err error) {
		if m == nil {
			if m, err = open("/proc", mountPoint); err != nil {
				return err
			}
		}
		return work(m)
	}
}

// keep calls look now and every minute until ctx ends. A failure is logged when it is another than the last one.
func keep(ctx context.Context, look func() error, log *slog.Logger) {
	for last := ""; ctx.Err() == nil; pause.For(ctx, lookEvery) {
		text := ""
		if err := look(); err != nil {
			text = err.Error()
		}
		if text != "" && text != last {
			log.Warn("processes are not in the cgroup that the configuration names", "error", text, "retry_in", lookEvery)
		}
		last = text
	}
}
