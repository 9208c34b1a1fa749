package stats

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"kubelot.dev/cri/cgroup"
	"kubelot.dev/services/stats/internal/text"
)

// family is one of cAdvisor's metrics: its name, type and what a cgroup has of it.
type family struct {
	name, kind, help string
	values           func(s *subject, emit emitter)
	// fixed values have no time: they are the cgroup's settings.
	fixed bool
}

// emitter takes a value with labels of its own.
type emitter func(labels text.Labels, value float64)

// subject is a cgroup with the labels that it is known by.
type subject struct {
	labels   text.Labels
	r        *reading
	network  []cgroup.Interface
	devices  map[[2]uint64]string
	disk     *nodeDisk
	oomKills uint64
}

// nodeDisk is the node's own filesystem, which only the root has.
type nodeDisk struct {
	labels                             text.Labels
	capacity, used, inodes, inodesFree uint64
}

// families are the metrics that the kubelet takes from cAdvisor, sorted by name.
func families() []family {
	return slices.Concat(cpuFamilies(), diskFamilies(), memoryFamilies(), networkFamilies(),
		pressureFamilies(), otherFamilies())
}

func seconds(nanos uint64) float64 { return float64(nanos) / float64(time.Second) }

// ofCPU is a family of CPU figures.
func ofCPU(name, help string, value func(c *cgroup.CPU) float64) family {
	return family{name: name, kind: text.Counter, help: help, values: func(s *subject, emit emitter) {
		if s.r.CPU != nil {
			emit("", value(s.r.CPU))
		}
	}}
}

// limited leaves the value out where CPU time has no limit.
func limited(f family) family {
	all := f.values
	f.values = func(s *subject, emit emitter) {
		if s.r.CPU != nil && s.r.CPU.Quota > 0 {
			all(s, emit)
		}
	}
	return f
}

func cpuFamilies() []family {
	total := ofCPU("container_cpu_usage_seconds_total", "CPU time in seconds.", nil)
	total.values = func(s *subject, emit emitter) {
		if s.r.CPU != nil {
			emit(`cpu="total"`, seconds(s.r.CPU.Total))
		}
	}
	return []family{
		limited(ofCPU("container_cpu_cfs_burst_periods_total", "Periods in which CPU time was used beyond the quota.",
			func(c *cgroup.CPU) float64 { return float64(c.Bursts) })),
		limited(ofCPU("container_cpu_cfs_burst_seconds_total", "CPU time used beyond the quota, in seconds.",
			func(c *cgroup.CPU) float64 { return seconds(c.BurstTime) })),
		limited(ofCPU("container_cpu_cfs_periods_total", "Periods of the CPU limit that have passed.",
			func(c *cgroup.CPU) float64 { return float64(c.Periods) })),
		limited(ofCPU("container_cpu_cfs_throttled_periods_total", "Periods in which the CPU limit was reached.",
			func(c *cgroup.CPU) float64 { return float64(c.Throttled) })),
		limited(ofCPU("container_cpu_cfs_throttled_seconds_total", "Time in seconds for which the CPU limit held the "+
			"container up.", func(c *cgroup.CPU) float64 { return seconds(c.ThrottledTime) })),
		ofCPU("container_cpu_system_seconds_total", "CPU time in the kernel, in seconds.",
			func(c *cgroup.CPU) float64 { return seconds(c.System) }),
		total,
		ofCPU("container_cpu_user_seconds_total", "CPU time outside the kernel, in seconds.",
			func(c *cgroup.CPU) float64 { return seconds(c.User) }),
	}
}

// ofDevices is a family with a value for each block device.
func ofDevices(name, help string, value func(d *cgroup.DeviceIO) uint64) family {
	return family{name: name, kind: text.Counter, help: help, values: func(s *subject, emit emitter) {
		for i := range s.r.IO {
			emit(deviceLabels(s.devices, s.r.IO[i].Major, s.r.IO[i].Minor), float64(value(&s.r.IO[i])))
		}
	}}
}

// deviceLabels name a device, by its numbers if the kernel gives no name.
func deviceLabels(names map[[2]uint64]string, major, minor uint64) text.Labels {
	name, ok := names[[2]uint64{major, minor}]
	if !ok {
		name = fmt.Sprintf("%d:%d", major, minor)
	}
	return text.Pairs("device", name)
}

// ofDisk is a family of the node's filesystem.
func ofDisk(name, help string, value func(d *nodeDisk) uint64) family {
	return family{name: name, kind: text.Gauge, help: help, values: func(s *subject, emit emitter) {
		if s.disk != nil {
			emit(s.disk.labels, float64(value(s.disk)))
		}
	}}
}

func diskFamilies() []family {
	blkio := family{
		name: "container_blkio_device_usage_total", kind: text.Counter,
		help: "Bytes moved to and from block devices.",
	}
	blkio.values = func(s *subject, emit emitter) {
		for i := range s.r.IO {
			d := &s.r.IO[i]
			labels := deviceLabels(s.devices, d.Major, d.Minor).And(text.Pairs("major", strconv.FormatUint(d.Major, 10), "minor",
				strconv.FormatUint(d.Minor, 10)))
			emit(labels.And(`operation="Read"`), float64(d.ReadBytes))
			emit(labels.And(`operation="Write"`), float64(d.WrittenBytes))
		}
	}
	return []family{
		blkio,
		ofDisk("container_fs_inodes_free", "Inodes that are free on the filesystem.",
			func(d *nodeDisk) uint64 { return d.inodesFree }),
		ofDisk("container_fs_inodes_total", "Inodes of the filesystem.", func(d *nodeDisk) uint64 { return d.inodes }),
		ofDisk("container_fs_limit_bytes", "Size of the filesystem in bytes.", func(d *nodeDisk) uint64 {
			return d.capacity
		}),
		ofDevices("container_fs_reads_bytes_total", "Bytes read from block devices.",
			func(d *cgroup.DeviceIO) uint64 { return d.ReadBytes }),
		ofDevices("container_fs_reads_total", "Reads from block devices.", func(d *cgroup.DeviceIO) uint64 {
			return d.Reads
		}),
		ofDisk("container_fs_usage_bytes", "Bytes used on the filesystem.", func(d *nodeDisk) uint64 { return d.used }),
		ofDevices("container_fs_writes_bytes_total", "Bytes written to block devices.",
			func(d *cgroup.DeviceIO) uint64 { return d.WrittenBytes }),
		ofDevices("container_fs_writes_total", "Writes to block devices.", func(d *cgroup.DeviceIO) uint64 {
			return d.Writes
		}),
	}
}

// ofMemory is a family of memory figures.
func ofMemory(name, kind, help string, value func(m *cgroup.Memory) uint64) family {
	return family{name: name, kind: kind, help: help, values: func(s *subject, emit emitter) {
		if s.r.Memory != nil {
			emit("", float64(value(s.r.Memory)))
		}
	}}
}

// ofVersion2 is a family of what only cgroup version 2 counts.
func ofVersion2(name, kind, help string, value func(m *cgroup.Memory) uint64) family {
	return family{name: name, kind: kind, help: help, values: func(s *subject, emit emitter) {
		if m := s.r.Memory; m != nil && m.Version2 {
			emit("", float64(value(m)))
		}
	}}
}

func memoryFamilies() []family {
	failures := family{name: "container_memory_failures_total", kind: text.Counter, help: "Page faults."}
	failures.values = func(s *subject, emit emitter) {
		if m := s.r.Memory; m != nil {
			for _, scope := range []text.Labels{`scope="container"`, `scope="hierarchy"`} {
				emit(scope.And(`failure_type="pgfault"`), float64(m.Faults))
				emit(scope.And(`failure_type="pgmajfault"`), float64(m.MajorFaults))
			}
		}
	}
	return []family{
		ofMemory("container_memory_cache", text.Gauge, "Page cache in bytes.", func(m *cgroup.Memory) uint64 {
			return m.Cache
		}),
		ofVersion2("container_memory_events_high_total", text.Counter, "Times that the high bound held the container up.",
			func(m *cgroup.Memory) uint64 { return m.EventsHigh }),
		ofVersion2("container_memory_events_max_total", text.Counter, "Times that the memory limit was reached.",
			func(m *cgroup.Memory) uint64 { return m.EventsMax }),
		ofMemory("container_memory_failcnt", text.Counter, "Times that the memory limit was reached.",
			func(m *cgroup.Memory) uint64 { return m.FailCount }),
		failures,
		ofVersion2("container_memory_file_dirty_bytes", text.Gauge, "Page cache that is still to be written, in bytes.",
			func(m *cgroup.Memory) uint64 { return m.Dirty }),
		ofVersion2("container_memory_file_writeback_bytes", text.Gauge, "Page cache that is being written, in bytes.",
			func(m *cgroup.Memory) uint64 { return m.Writeback }),
		ofMemory("container_memory_kernel_usage", text.Gauge, "Kernel memory in bytes.",
			func(m *cgroup.Memory) uint64 { return m.Kernel }),
		ofMemory("container_memory_mapped_file", text.Gauge, "Mapped files in bytes.",
			func(m *cgroup.Memory) uint64 { return m.Mapped }),
		ofMemory("container_memory_max_usage_bytes", text.Gauge, "Most memory that was ever in use, in bytes.",
			func(m *cgroup.Memory) uint64 { return m.MaxUsage }),
		ofVersion2("container_memory_pgscan_total", text.Counter, "Pages that reclaim has looked at.",
			func(m *cgroup.Memory) uint64 { return m.Scanned }),
		ofVersion2("container_memory_pgsteal_total", text.Counter, "Pages that reclaim has taken.",
			func(m *cgroup.Memory) uint64 { return m.Stolen }),
		ofMemory("container_memory_rss", text.Gauge, "Anonymous memory in bytes.",
			func(m *cgroup.Memory) uint64 { return m.RSS }),
		ofMemory("container_memory_swap", text.Gauge, "Swap in use, in bytes.", func(m *cgroup.Memory) uint64 {
			return m.Swap
		}),
		ofMemory("container_memory_total_active_file_bytes", text.Gauge, "Active page cache in bytes.",
			func(m *cgroup.Memory) uint64 { return m.ActiveFile }),
		ofMemory("container_memory_total_inactive_file_bytes", text.Gauge, "Inactive page cache in bytes.",
			func(m *cgroup.Memory) uint64 { return m.InactiveFile }),
		ofMemory("container_memory_usage_bytes", text.Gauge, "Memory in use in bytes, whenever it was last touched.",
			func(m *cgroup.Memory) uint64 { return m.Usage }),
		ofVersion2("container_memory_workingset_refault_anon_total", text.Counter,
			"Anonymous pages that were needed again after reclaim.", func(m *cgroup.Memory) uint64 { return m.RefaultedAnon }),
		ofVersion2("container_memory_workingset_refault_file_total", text.Counter,
			"File pages that were needed again after reclaim.", func(m *cgroup.Memory) uint64 { return m.RefaultedFile }),
		ofMemory("container_memory_working_set_bytes", text.Gauge, "Memory in use without inactive page cache, in bytes.",
			func(m *cgroup.Memory) uint64 { return m.WorkingSet }),
	}
}

// ofInterfaces is a family with a value for each network interface.
func ofInterfaces(name, help string, value func(i *cgroup.Interface) uint64) family {
	return family{name: name, kind: text.Counter, help: help, values: func(s *subject, emit emitter) {
		for i := range s.network {
			emit(text.Pairs("interface", s.network[i].Name), float64(value(&s.network[i])))
		}
	}}
}

func networkFamilies() []family {
	return []family{
		ofInterfaces("container_network_receive_bytes_total", "Bytes received.", func(i *cgroup.Interface) uint64 {
			return i.RxBytes
		}),
		ofInterfaces("container_network_receive_errors_total", "Errors while receiving.",
			func(i *cgroup.Interface) uint64 { return i.RxErrors }),
		ofInterfaces("container_network_receive_packets_dropped_total", "Packets dropped while receiving.",
			func(i *cgroup.Interface) uint64 { return i.RxDropped }),
		ofInterfaces("container_network_receive_packets_total", "Packets received.",
			func(i *cgroup.Interface) uint64 { return i.RxPackets }),
		ofInterfaces("container_network_transmit_bytes_total", "Bytes sent.", func(i *cgroup.Interface) uint64 {
			return i.TxBytes
		}),
		ofInterfaces("container_network_transmit_errors_total", "Errors while sending.",
			func(i *cgroup.Interface) uint64 { return i.TxErrors }),
		ofInterfaces("container_network_transmit_packets_dropped_total", "Packets dropped while sending.",
			func(i *cgroup.Interface) uint64 { return i.TxDropped }),
		ofInterfaces("container_network_transmit_packets_total", "Packets sent.", func(i *cgroup.Interface) uint64 {
			return i.TxPackets
		}),
	}
}

// ofPressure is a family of stalled time.
func ofPressure(name, help, resource string, value func(p *cgroup.Pressure) uint64) family {
	return family{name: name, kind: text.Counter, help: help, values: func(s *subject, emit emitter) {
		if p := s.r.pressure(resource); p != nil {
			emit("", seconds(value(p)))
		}
	}}
}

func pressureFamilies() []family {
	var list []family
	for _, resource := range []string{"cpu", "io", "memory"} {
		list = append(
			list,
			ofPressure("container_pressure_"+resource+"_stalled_seconds_total",
				"Time in seconds in which no task made progress for lack of "+resource+".",
				resource, func(p *cgroup.Pressure) uint64 { return p.Full.Total }),
			ofPressure("container_pressure_"+resource+"_waiting_seconds_total",
				"Time in seconds in which some task waited for "+resource+".",
				resource, func(p *cgroup.Pressure) uint64 { return p.Some.Total }),
		)
	}
	return list
}

// pressure is that of a resource, nil if it isn't known.
func (r *reading) pressure(resource string) *cgroup.Pressure {
	switch {
	case resource == "io":
		return r.IOPressure
	case resource == "cpu" && r.CPU != nil:
		return r.CPU.Pressure
	case resource == "memory" && r.Memory != nil:
		return r.Memory.Pressure
	}
	return nil
}
