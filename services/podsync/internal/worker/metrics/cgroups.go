package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cgroupMetrics are those of the cgroup manager.
type cgroupMetrics struct {
	cgroups       *prometheus.HistogramVec
	cgroupVersion *prometheus.GaugeVec
}

func newCgroupMetrics(f *factory) *cgroupMetrics {
	return &cgroupMetrics{
		cgroups: f.histogram("kubelet_cgroup_manager_duration_seconds",
			"How long it took to create, update and destroy cgroups.", prometheus.DefBuckets, "operation_type"),
		cgroupVersion: f.gauge("kubelet_cgroup_version", "The machine's cgroup version, 1 or 2."),
	}
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
