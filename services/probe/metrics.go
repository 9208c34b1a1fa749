package probe

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kubelot.dev/bus/topic"
)

// metrics are the kubelet's metrics of its prober, which have a page of their own, and how late probes begin.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	late     *prometheus.HistogramVec
}

// page is where kubelot-api finds the metrics of containers' probes: the kubelet has them apart from its own, too.
const page = "/metrics/probes"

func newMetrics(registry prometheus.Registerer, pages *http.ServeMux) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "Runs of liveness, readiness and startup probes by container and result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "How long successful runs of probes took.", Buckets: prometheus.DefBuckets,
		}, []string{"probe_type", "container", "pod", "namespace"}),
		late: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelot_probe_late_seconds", Help: "How much later than planned probes began: exec probes give way to starting and stopping pods.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"handler"}),
	}
	probes := prometheus.NewRegistry()
	if err := errors.Join(probes.Register(m.total), probes.Register(m.duration), registry.Register(m.late)); err != nil {
		return nil, fmt.Errorf("register the metrics of probes: %w", err)
	}
	pages.Handle(page, promhttp.HandlerFor(probes, promhttp.HandlerOpts{}))
	return m, nil
}

func (m *metrics) began(p *probe) {
	handler := "network"
	if p.exec() {
		handler = "exec"
	}
	m.late.WithLabelValues(handler).Observe(p.began.Sub(p.due).Seconds())
}

func (m *metrics) ended(p *probe, success bool, took time.Duration) {
	result := "failed"
	if success {
		result = "successful"
		m.duration.WithLabelValues(title(p.kind), p.container, p.ref.Name, p.ref.Namespace).Observe(took.Seconds())
	}
	m.total.WithLabelValues(title(p.kind), result, p.container, p.ref.Name, p.ref.Namespace, p.ref.UID).Inc()
}

// gone removes the pod's series.
func (m *metrics) gone(ref topic.Ref) {
	m.duration.DeletePartialMatch(prometheus.Labels{"pod": ref.Name, "namespace": ref.Namespace})
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": ref.UID})
}
