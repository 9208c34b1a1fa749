package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's metrics of runtime operations.
type metrics struct {
	total    *prometheus.CounterVec
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics registers the metrics; a second client on one registry shares those of the first.
func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	label := []string{"operation_type"}
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Calls to the container runtime by operation type.",
		}, label),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Failed calls to the container runtime by operation type.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "How long calls to the container runtime took, by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, label),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	m.total = register(registry, m.total, &err)
	m.errors = register(registry, m.errors, &err)
	m.duration = register(registry, m.duration, &err)
	return m, err
}

func register[C prometheus.Collector](registry prometheus.Registerer, collector C, err *error) C {
	e := registry.Register(collector)
	if e == nil {
		return collector
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(e, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	*err = errors.Join(*err, fmt.Errorf("register the metrics of runtime operations: %w", e))
	return collector
}

// failed reports whether a call counts as an error. One that its caller gave up, since it needs the answer no longer,
// says nothing of the runtime.
func failed(ctx context.Context, err error) bool {
	return err != nil && !errors.Is(ctx.Err(), context.Canceled)
}

func (m *metrics) observe(operation string, took time.Duration, failed bool) {
	m.total.WithLabelValues(operation).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
	if failed {
		m.errors.WithLabelValues(operation).Inc()
	}
}
