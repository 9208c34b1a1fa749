// Package stats measures the machine, and what the node, its pods, containers, volumes and filesystems use of it.
//
// # Reads
//
// pod.update (volumes), pleg.event (sandboxes and containers), volume.state (where volumes are). From the machine: the
// cgroup hierarchies, version 1 or 2; /proc, /sys and /etc; the filesystems of the root directory, of volumes and of
// logs; the kernel's log, also what it has from before the daemon started. From the runtime: the sizes of images and of
// writable layers. If a caller needs newer sizes of writable layers: the mount table and the layers' directories.
//
// # Writes
//
// node.machine. event.stats: SystemOOM, for a process that the kernel killed because the machine had no memory left.
//
// # Serves
//
// The call stats.summary. On the daemon's socket: /stats/summary, /metrics/resource and /metrics/cadvisor, which
// kubelot-api passes on to its clients. The daemon's own metrics contain the kubelet's metrics of volumes and logs,
// with the figures that were read last.
//
// # Owns
//
// Nothing on disk.
//
// # Guarantees
//
//   - The machine is read at start and each minute. A message is sent when something has changed. A fact that can't be
//     read any more keeps its value, and is named in the daemon's health. Usage is read when a caller asks. Between two
//     requests only the reader of the kernel's log runs, and it sleeps.
//   - Callers that ask at the same time share one reading. Figures are at most as old as the caller allows, or 5 s
//     (cgroups), 10 s (filesystems) and volumeStatsAggPeriod (volumes). Writable layers are as old as the runtime's
//     figures. If the caller allows less, stats counts them itself, if they are overlays as containerd mounts them.
//   - Every source has its own deadline, and an answer waits 5 s for the slowest. Figures that can't be read are left
//     out, and named in the daemon's health and in kubelot_stats_read_errors_total. A slow source delays no other.
//   - Directories are counted two at a time at the lowest priority, never across filesystems, each inode once. After a
//     slow count the directory isn't counted again for ten times as long as the count took, up to
//     volumeStatsAggPeriod, or for as long as it took if an eviction needs the figure. If a count fails half way, the
//     sum up to there is reported. A directory that can't be counted isn't reported as empty.
//   - CPU usage is the difference to a sample of 5 s to a minute ago. If there is none, two samples are taken 200 ms
//     apart.
//
// Source: the summary API (k8s.io/kubelet/pkg/apis/stats/v1alpha1), KEP-727 (resource metrics), KEP-4205 (pressure),
// cAdvisor's metrics.
//
// What is where: summary.go and families.go turn readings into answers, and rate.go decides on samples; they do no I/O.
// state.go keeps what the bus says, usage.go reads cgroups, layers.go counts writable layers, and source.go reads the
// rest. answer.go combines them. stats.go is the loop.
package stats
