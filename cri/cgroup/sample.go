// Package cgroup reads the usage of cgroups, version 1 and 2, of the network that a cgroup's processes are in, and of
// the machine where the root cgroup doesn't tell. It keeps nothing between two readings and starts nothing.
//
// # Reads
//
// The files of the cgroup hierarchies, /proc/<pid>/net/dev, /proc/meminfo, /proc/loadavg, /proc/diskstats,
// /proc/pressure and /proc/sys/kernel, below a root that tests replace.
//
// # Guarantees
//
//   - A part of a sample is nil where its controller has no files there; a cgroup that is gone is ErrGone.
//   - A figure that the kernel writes in another way than expected is left out, never guessed; the functions that
//     return one figure have an error that says why it isn't there.
//   - Working set is usage without inactive files, as in Kubernetes' documentation of memory.available.
//
// The files are read by hand. github.com/opencontainers/cgroups takes up to 4.6 times the CPU time for one reading and
// allocates up to 26 times the memory. It loses a whole reading where one file is missing, and it lacks figures that
// stats reports (docs/adr/0022).
package cgroup

import (
	"errors"
	"time"
)

// ErrGone says that there is no such cgroup.
var ErrGone = errors.New("the cgroup is gone")

// Sample is one reading of one cgroup. What is nil wasn't asked for or isn't there.
type Sample struct {
	// At is when the reading began, Created when the cgroup was made.
	At, Created time.Time
	CPU         *CPU
	Memory      *Memory
	Tasks       *Tasks
	// IO is by device; IOPressure is version 2's.
	IO         []DeviceIO
	IOPressure *Pressure
}

// CPU is time in nanoseconds since the cgroup was made.
type CPU struct {
	Total, User, System uint64
	// Periods, Throttled and ThrottledTime (ns), Bursts and BurstTime (ns) are those of the bandwidth limit.
	Periods, Throttled, ThrottledTime uint64
	Bursts, BurstTime                 uint64
	// Shares is the weight as cgroup v1 counts it; Quota and Period are in microseconds, a Quota of 0 is no limit.
	Shares, Quota, Period uint64
	Pressure              *Pressure
}

// Memory is in bytes, except the counters of faults and events.
type Memory struct {
	Usage, MaxUsage, WorkingSet  uint64
	RSS, Cache, Mapped, Kernel   uint64
	ActiveFile, InactiveFile     uint64
	Dirty, Writeback             uint64
	Faults, MajorFaults          uint64
	FailCount, OOMKills          uint64
	Scanned, Stolen              uint64
	RefaultedFile, RefaultedAnon uint64
	EventsHigh, EventsMax        uint64
	Swap, SwapLimit              uint64
	// SwapBound is the limit as it is set in the kernel: that of version 1 is for memory and swap together.
	SwapBound          uint64
	Limit, Reservation uint64
	// Version2 is true if the counters are there that only version 2 has.
	Version2 bool
	Pressure *Pressure
}

// Unlimited is the limit of a cgroup that has none.
const Unlimited = ^uint64(0)

// Tasks counts processes and threads.
type Tasks struct {
	Processes, Threads uint64
	// ThreadsMax is 0 for no bound.
	ThreadsMax uint64
}

// DeviceIO is what was read from and written to a block device.
type DeviceIO struct {
	Major, Minor            uint64
	ReadBytes, WrittenBytes uint64
	Reads, Writes           uint64
}

// Pressure is the kernel's pressure stall information of one resource.
type Pressure struct {
	Some, Full Stall
}

// Stall is a share of time in percent over three windows, and the sum in nanoseconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// Interface are the counters of a network interface.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}
