package topic

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Machine is the payload of node.machine.
type Machine struct {
	NumCores int `json:"numCores"`
	// MemoryBytes is the physical memory, SwapBytes the swap space.
	MemoryBytes uint64 `json:"memoryBytes"`
	SwapBytes   uint64 `json:"swapBytes,omitempty"`
	// HugePages is the number of pages by page size in KiB.
	HugePages map[uint64]uint64 `json:"hugePages,omitempty"`
	// RootFS is the filesystem of the root directory.
	RootFS Filesystem `json:"rootFS"`
	// PIDLimit is the most processes the machine can have.
	PIDLimit int64 `json:"pidLimit"`

	MachineID     string `json:"machineID"`
	SystemUUID    string `json:"systemUUID"`
	BootID        string `json:"bootID"`
	KernelVersion string `json:"kernelVersion"`
	OSImage       string `json:"osImage"`
	// CgroupVersion is 1 or 2.
	CgroupVersion int `json:"cgroupVersion"`
}

// Filesystem is a filesystem's size.
type Filesystem struct {
	Path          string `json:"path"`
	CapacityBytes uint64 `json:"capacityBytes"`
	Inodes        uint64 `json:"inodes,omitempty"`
}

// Pressure is the payload of node.pressure.
type Pressure struct {
	Memory bool `json:"memory"`
	Disk   bool `json:"disk"`
	PID    bool `json:"pid"`
	// Message names the signals that are over their threshold.
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	// Relieved is since when no threshold of a condition that still holds is met; for gc itself, after a restart.
	Relieved map[corev1.NodeConditionType]time.Time `json:"relieved,omitempty"`
}

// HealthState is how a daemon does.
type HealthState string

const (
	// Healthy daemons do all they should.
	Healthy HealthState = "healthy"
	// Degraded daemons do part of it; the message says what is missing.
	Degraded HealthState = "degraded"
	// Unhealthy daemons can't do their job; the node is not Ready where the job is vital.
	Unhealthy HealthState = "unhealthy"
	// Stopped daemons ended in order.
	Stopped HealthState = "stopped"
)

const (
	// BeatEvery is how often a daemon sends its health where nothing has changed.
	BeatEvery = 30 * time.Second
	// silence is how long after its last beat a daemon counts as away. A daemon that stands still for a minute (SIGSTOP,
	// a machine that swaps) may have been about to beat, and needs a moment afterwards. Whoever asks gets the same answer,
	// by this patient limit: the node's Ready condition depends on it, and must not turn on a slow machine
	// (docs/adr/0028).
	silence = BeatEvery + time.Minute + 5*time.Second
)

// DaemonHealth is the payload of health.<daemon>. It is sent on change and each BeatEvery.
type DaemonHealth struct {
	State   HealthState `json:"state"`
	Message string      `json:"message,omitempty"`
	Since   time.Time   `json:"since"`
	// Beat is when the daemon last said so.
	Beat time.Time `json:"beat"`
	// Asleep is true for a daemon that nothing needs and that says no more until it is woken (docs/adr/0034).
	Asleep  bool      `json:"asleep,omitempty"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Silent reports whether the daemon counts as away, since it has sent nothing for longer than it may.
func (h DaemonHealth) Silent(now time.Time) bool { return !h.Asleep && now.Sub(h.Beat) >= silence }
