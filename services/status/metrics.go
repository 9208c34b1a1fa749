package status

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are under the kubelet's names.
type metrics struct {
	sync prometheus.Histogram
}

func newMetrics(r *prometheus.Registry) metrics {
	m := metrics{sync: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubelet_pod_status_sync_duration_seconds",
		Help:    "Duration in seconds from a pod status change until the API server has it.",
		Buckets: []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60},
	})}
	r.MustRegister(m.sync)
	return m
}
