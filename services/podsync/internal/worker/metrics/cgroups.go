package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cgroupMetrics are those of the cgroup manager.
type cgroupMetrics struct {
	cgroups       *prometheus.HistogramVec
	cgroupVersion *prometheus.GaugeVec
	// memoryMin and memoryLow show with their first value, which they only get under the feature gate MemoryQoS.
	memoryMin, memoryLow *prometheus.GaugeVec
}

func newCgroupMetrics(f *factory) *cgroupMetrics {
	return &cgroupMetrics{
		cgroups: f.histogram("kubelet_cgroup_manager_duration_seconds",
			"How long it took to create, update and destroy cgroups.", prometheus.DefBuckets, "operation_type"),
		cgroupVersion: f.gauge("kubelet_cgroup_version", "The machine's cgroup version, 1 or 2."),
		memoryMin: f.hidden("kubelet_memory_qos_node_memory_min_bytes",
			"Memory that guaranteed pods request and the kernel doesn't take from them (memory.min)."),
		memoryLow: f.hidden("kubelet_memory_qos_node_memory_low_bytes",
			"Memory that burstable pods request and the kernel takes from them last (memory.low)."),
	}
}

// MemoryProtected shows the memory that is protected of guaranteed and of burstable pods, in bytes.
func (m *cgroupMetrics) MemoryProtected(guaranteed, burstable int64) {
	m.memoryMin.WithLabelValues().Set(float64(guaranteed))
	m.memoryLow.WithLabelValues().Set(float64(burstable))
}

// Cgroup records an operation of the cgroup manager: create, update or destroy.
func (m *cgroupMetrics) Cgroup(operation string, took time.Duration) {
	m.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// CgroupVersion shows the machine's cgroup version.
func (m *cgroupMetrics) CgroupVersion(unified bool) {
	version := 1.0
	if unified {
		version = 2
	}
	m.cgroupVersion.WithLabelValues().Set(version)
}
