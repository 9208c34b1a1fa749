package deviceplugin

import (
	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
)

// Metrics are the kubelet's about device plugins.
type Metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
	devices       *prometheus.GaugeVec
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
		devices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelot_device_plugin_devices",
			Help: "Devices by what their plugin says of them: healthy or unhealthy. A plugin that is gone has none.",
		}, []string{"resource_name", "health"}),
	}
	return m, daemon.RegisterMetrics(r, "device plugins", m.registrations, m.allocations, m.devices)
}

// reported shows how many devices of a resource are well.
func (m *Metrics) reported(r Report) {
	healthy := 0
	for _, d := range r.Devices {
		if d.Healthy {
			healthy++
		}
	}
	m.devices.WithLabelValues(r.Resource, "healthy").Set(float64(healthy))
	m.devices.WithLabelValues(r.Resource, "unhealthy").Set(float64(len(r.Devices) - healthy))
}
