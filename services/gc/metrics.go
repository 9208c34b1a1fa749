package gc

import (
	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
)

// metrics are the kubelet's metrics of eviction and collection, and what they lack.
type metrics struct {
	evictions *prometheus.CounterVec
	statsAge  *prometheus.HistogramVec
	images    *prometheus.CounterVec
	rotated   prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "Pods evicted, by the signal that did it.",
		}, []string{"eviction_signal"}),
		statsAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_eviction_stats_age_seconds", Help: "Age of the readings on which pods were evicted, by signal.",
			Buckets: prometheus.DefBuckets,
		}, []string{"eviction_signal"}),
		images: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Images removed, for their age or for space.",
		}, []string{"reason"}),
		rotated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelot_gc_logs_rotated_total", Help: "Container logs rotated.",
		}),
	}
	if err := daemon.RegisterMetrics(registry, "gc", m.evictions, m.statsAge, m.images, m.rotated); err != nil {
		return nil, err
	}
	return m, nil
}
