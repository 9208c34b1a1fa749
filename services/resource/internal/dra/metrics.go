package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
)

// The operations of dra_operations_duration_seconds.
const (
	opPrepare   = "PrepareResources"
	opUnprepare = "UnprepareResources"
)

// metrics are the kubelet's about dynamic resources.
type metrics struct {
	operations, calls *prometheus.HistogramVec
	used              *prometheus.GaugeVec
	// counted are the drivers that used has.
	counted map[string]int
}

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	buckets := prometheus.ExponentialBucketsRange(.1, 40, 15)
	m := &metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dra_operations_duration_seconds",
			Help:    "How long it took to prepare or unprepare all ResourceClaims of a pod.",
			Buckets: buckets,
		}, []string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_grpc_operations_duration_seconds", Help: "How long calls of DRA drivers took.", Buckets: buckets,
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
		used: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dra_resource_claims_in_use",
			Help: "ResourceClaims that are prepared, by driver; <any> counts each once.",
		}, []string{"driver_name"}),
	}
	if r == nil {
		return m, nil
	}
	return m, daemon.RegisterMetrics(r, "dynamic resources", m.operations, m.calls, m.used)
}

// done counts an attempt.
func (m *metrics) done(operation string, failed bool, took time.Duration) {
	m.operations.WithLabelValues(operation, strconv.FormatBool(failed)).Observe(took.Seconds())
}

// call counts a call of a driver. It may be called from any goroutine.
func (m *metrics) call(driver, method, code string, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code).Observe(took.Seconds())
}

// inUse takes how many claims are prepared.
func (m *metrics) inUse(n map[string]int) {
	for driver := range m.counted {
		if _, still := n[driver]; !still {
			m.used.DeleteLabelValues(driver)
		}
	}
	for driver, count := range n {
		m.used.WithLabelValues(driver).Set(float64(count))
	}
	m.counted = n
}
