package deviceplugin

import (
	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
)

// Metrics are the kubelet's about device plugins.
type Metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total",
			Help: "Registrations of device plugins.",
		}, []string{"resource_name"}),
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_device_plugin_alloc_duration_seconds",
			Help:    "How long device plugins took to answer Allocate.",
			Buckets: prometheus.DefBuckets,
		}, []string{"resource_name"}),
	}
	return m, daemon.RegisterMetrics(r, "device plugins", m.registrations, m.allocations)
}
