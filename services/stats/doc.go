// Package stats tells what the machine is, and what the node, its pods, containers, volumes and filesystems use of it.
//
// # Reads
//
// pod.update (volumes), pleg.event (sandboxes and containers), volume.state (where volumes are). The cgroup hierarchies, version 1 or 2;
// /proc, /sys and /etc; the filesystems of the root directory, of volumes and of logs; the kernel's log, from the start on. From the
// runtime: the sizes of images and of writable layers; where the caller needs them newer, what is mounted and the layers' directories.
//
// # Writes
//
// node.machine. event.stats: SystemOOM, for a process that the kernel killed because the machine had no memory left.
//
// # Serves
//
// The call stats.summary. On the daemon's socket: /stats/summary, /metrics/resource and /metrics/cadvisor, which kubelot-api hands on;
// among its metrics the kubelet's of volumes and logs, as last read.
//
// # Owns
//
// Nothing on disk.
//
// # Guarantees
//
//   - The machine's facts are read at start and each minute; a message is sent when they differ. Usage is read when somebody asks;
//     between two requests nothing runs but the reader of the kernel's log, which sleeps.
//   - Whoever asks at the same time shares one reading. Figures are at most as old as the caller allows, or 5 s (cgroups), 10 s
//     (filesystems) and volumeStatsAggPeriod (volumes). Writable layers are as old as the runtime's figures are, unless the caller says
//     how old they may be: then stats counts them itself, where they are overlays as containerd mounts them.
//   - Every source has its own deadline: an answer waits 5 s for the slowest. What can't be read is left out and named in the daemon's
//     health and in kubelot_stats_read_errors_total; it holds up nothing else.
//   - Directories are counted two at a time at the lowest priority, never across filesystems, each inode once; what is
//     slow rests ten times as long as it took, up to volumeStatsAggPeriod, or as long as it took where somebody is
//     evicted by it. Of what can't be counted whole the rest is told: nothing counts as empty.
//   - CPU use is taken over an earlier sample of 5 s to a minute ago; where there is none, two samples are taken 200 ms apart.
//
// Source: the summary API (k8s.io/kubelet/pkg/apis/stats/v1alpha1), KEP-727 (resource metrics), KEP-4205 (pressure), cAdvisor's metrics.
//
// What is where: summary.go and families.go turn readings into answers, rate.go decides on samples; they do no I/O. state.go is what
// the bus says, usage.go reads cgroups, layers.go counts writable layers, source.go reads the rest, answer.go brings them together;
// stats.go is the loop.
package stats
