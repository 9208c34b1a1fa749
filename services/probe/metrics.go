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
	// lateExec and lateNetwork are late's series.
	lateExec, lateNetwork prometheus.Observer
	// removals counts the pods whose series were removed.
	removals int
}

// series are the metrics of one probe's runs, so that not every run looks them up by their labels. They hold until
// series are removed: those of the duration are named by the pod without its UID, and may be another pod's of that
// name, too.
type series struct {
	succeeded, failed prometheus.Counter
	duration          prometheus.Observer
	removals          int
}

// page is where kubelot-api finds the metrics of containers' probes: the kubelet has them apart from its own, too.
const page = "/metrics/probes"

func newMetrics(registry prometheus.Registerer, pages *http.ServeMux) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "Runs of liveness, readiness and startup probes by container and result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "How long successful runs of probes took.",
			Buckets: prometheus.DefBuckets,
		}, []string{"probe_type", "container", "pod", "namespace"}),
		late: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelot_probe_late_seconds",
			Help:    "How much later than planned probes began: exec probes give way to starting and stopping pods.",
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
	late, handler := &m.lateNetwork, "network"
	if p.exec() {
		late, handler = &m.lateExec, "exec"
	}
	if *late == nil {
		*late = m.late.WithLabelValues(handler)
	}
	(*late).Observe(p.began.Sub(p.due).Seconds())
}

// ended counts a run of a probe that still is to run: gone removes the series of the others.
func (m *metrics) ended(p *probe, success bool, took time.Duration) {
	s := &p.series
	if s.removals != m.removals {
		*s = series{removals: m.removals}
	}
	if !success {
		if s.failed == nil {
			s.failed = m.counter(p, "failed")
		}
		s.failed.Inc()
		return
	}
	if s.succeeded == nil {
		s.succeeded = m.counter(p, "successful")
		s.duration = m.duration.WithLabelValues(title(p.kind), p.container, p.ref.Name, p.ref.Namespace)
	}
	s.succeeded.Inc()
	s.duration.Observe(took.Seconds())
}

func (m *metrics) counter(p *probe, result string) prometheus.Counter {
	return m.total.WithLabelValues(title(p.kind), result, p.container, p.ref.Name, p.ref.Namespace, p.ref.UID)
}

// gone removes the pod's series.
func (m *metrics) gone(ref topic.Ref) {
	m.removals++
	m.duration.DeletePartialMatch(prometheus.Labels{"pod": ref.Name, "namespace": ref.Namespace})
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": ref.UID})
}
