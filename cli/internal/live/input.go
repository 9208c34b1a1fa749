package live

import (
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/pulls"
)

// Input is something that the model learns. Only the fields that are set count.
type Input struct {
	// Message is a message as it passes, or of the bus's history.
	Message *bus.Message
	// HistoryRead says that the messages so far were the history, and all of it.
	HistoryRead bool
	// Retained is everything that the bus retains, as one reading. Keys that aren't in it are forgotten, unless they were
	// stated after RetainedAt, which is when the reading began.
	Retained   []bus.Message
	RetainedAt time.Time
	// Processes are the readings of all processes of the crew, by the names of the daemons. Pulls are the images that the
	// runtime was fetching then, if it tells.
	Processes map[string]Process
	Pulls     []pulls.Pull
	// Machine is a reading of the machine.
	Machine *Machine
	// Link says whether the bus answers.
	Link *Link
}

// Process is a reading of a daemon's process, as the kernel and the supervisor have it.
type Process struct {
	At  time.Time
	PID int
	// CPU is the time on CPUs that the process has used since it started. The model makes a rate of two readings.
	CPU time.Duration
	// MemoryBytes is what the process alone occupies: resident without the pages of files.
	MemoryBytes uint64
	// Restarts is the supervisor's count (systemd's NRestarts); -1 where nobody counts.
	Restarts int
	// Shares names the daemons of the same process in the compact layout, the daemon itself included; nil where it is
	// alone. CPU and memory are the whole process's.
	Shares []string
}

// Machine is a reading of the machine.
type Machine struct {
	At time.Time
	// MemoryBytes is the physical memory. AvailableBytes is what is left by the measure of evictions: capacity less the
	// working set.
	MemoryBytes    uint64
	AvailableBytes uint64
	// PIDs is how many processes and threads there are, PIDLimit how many there can be.
	PIDs     int64
	PIDLimit int64
	Disks    []Disk
	// Load is the load average of a minute.
	Load float64
	// Thresholds are the eviction thresholds that are configured.
	Thresholds []Threshold
}

// Disk is how full a filesystem is.
type Disk struct {
	// Role is nodefs, imagefs or containerfs; a filesystem with several roles has one entry, with the first.
	Role           string `json:"role"`
	Path           string `json:"path"`
	CapacityBytes  uint64 `json:"capacityBytes"`
	AvailableBytes uint64 `json:"availableBytes"`
	Inodes         uint64 `json:"inodes,omitempty"`
	FreeInodes     uint64 `json:"freeInodes,omitempty"`
}

// Threshold is a configured eviction threshold.
type Threshold struct {
	// Signal is the kubelet's, such as memory.available.
	Signal string `json:"signal"`
	// Value is a quantity or a percentage, as configured.
	Value string `json:"value"`
	Soft  bool   `json:"soft,omitempty"`
}

// Link is whether the bus answers.
type Link struct {
	Up bool `json:"up"`
	// Since is since when; zero where that isn't known.
	Since time.Time `json:"since,omitzero"`
	// Problem says why not, for a person.
	Problem string `json:"problem,omitempty"`
}
