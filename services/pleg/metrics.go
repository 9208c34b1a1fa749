package pleg

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// metrics are the kubelet's metrics of its PLEG.
type metrics struct {
	relistDuration, relistInterval prometheus.Histogram
	podRelist, eventLatency        prometheus.Histogram
	streams, streamErrors          prometheus.Counter
	lastSeen, runningPods          prometheus.Gauge
	containers                     *prometheus.GaugeVec
	discarded                      prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		relistDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_duration_seconds", Buckets: prometheus.DefBuckets,
			Help: "How long a relist took, from the lists to the reading of the last pod that differed.",
		}),
		relistInterval: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_interval_seconds", Buckets: prometheus.DefBuckets,
			Help: "Time between the starts of relists.",
		}),
		podRelist: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_pod_relist_duration_seconds", Buckets: prometheus.DefBuckets,
			Help: "How long it took to read one pod.",
		}),
		eventLatency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_evented_pleg_connection_latency_seconds", Buckets: prometheus.DefBuckets,
			Help: "Time from when the runtime made an event until it was here.",
		}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_success_count", Help: "Times that the runtime's event stream was opened.",
		}),
		streamErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_error_count",
			Help: "Times that the runtime's event stream could not be opened, or broke.",
		}),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "Unix time of the last complete relist.",
		}),
		discarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_pleg_discard_events",
			Help: "Times that events of the runtime came too fast and a relist took their place.",
		}),
		runningPods: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_running_pods", Help: "Pods with a sandbox that is ready.",
		}),
		containers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_running_containers", Help: "Containers by their state.",
		}, []string{"container_state"}),
	}
	for _, state := range []topic.ContainerState{
		topic.ContainerCreated, topic.ContainerRunning, topic.ContainerExited, topic.ContainerUnknown,
	} {
		m.containers.WithLabelValues(string(state)).Set(0)
	}
	return m, daemon.RegisterMetrics(
		registry, "pleg", m.relistDuration, m.relistInterval, m.podRelist, m.eventLatency, m.streams, m.streamErrors,
		m.lastSeen, m.discarded,
		m.runningPods, m.containers,
	)
}

// count brings the numbers of pods and containers up to date when a pod's observation has taken the place of another;
// nil is none.
func (m *metrics) count(before, now *topic.PodObservation) {
	m.add(before, -1)
	m.add(now, 1)
}

func (m *metrics) add(obs *topic.PodObservation, n float64) {
	if obs == nil {
		return
	}
	if len(obs.Sandboxes) > 0 && obs.Sandboxes[0].Ready {
		m.runningPods.Add(n)
	}
	for _, container := range obs.Containers {
		m.containers.WithLabelValues(string(container.State)).Add(n)
	}
}

func (m *metrics) relistBegins(now, last time.Time) {
	if !last.IsZero() {
		m.relistInterval.Observe(now.Sub(last).Seconds())
	}
}

func (m *metrics) relistEnds(now, begin time.Time) {
	m.relistDuration.Observe(now.Sub(begin).Seconds())
	m.lastSeen.Set(float64(now.Unix()))
}
