package volume

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's about volumes.
type metrics struct {
	operations *prometheus.HistogramVec
}

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) (metrics, error) {
	m := metrics{operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "storage_operation_duration_seconds",
		Help:    "How long it took to set up or tear down a volume.",
		Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	return m, r.Register(m.operations)
}

// done counts one operation.
func (m metrics) done(pluginName string, what op, took time.Duration, err error) {
	status, operation := "success", "volume_mount"
	if err != nil {
		status = "fail-unknown"
	}
	if what == opUnmount {
		operation = "volume_unmount"
	}
	m.operations.WithLabelValues(pluginName, operation, status, "false").Observe(took.Seconds())
}
