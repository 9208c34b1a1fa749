package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
)

// healthStates are those that a daemon's metrics show.
var healthStates = []topic.HealthState{topic.Healthy, topic.Degraded, topic.Unhealthy, topic.Stopped}

// healthMetrics show a daemon's health to those who watch many nodes. They are read from a goroutine of the scrape's,
// so that they are there while the daemon's loop hangs.
type healthMetrics struct {
	health      *health
	state, beat *prometheus.Desc
}

func newHealthMetrics(name string, h *health) healthMetrics {
	own := prometheus.Labels{"daemon": name}
	return healthMetrics{
		health: h,
		state: prometheus.NewDesc("kubelot_daemon_health", "1 for the state that the daemon says it is in, 0 for the others.",
			[]string{"state"}, own),
		beat: prometheus.NewDesc("kubelot_daemon_beat_timestamp_seconds",
			"Unix time of when the daemon's loop last came round; 0 before the first time, and while it sleeps.", nil, own),
	}
}

// Describe implements prometheus.Collector.
func (m healthMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.state
	out <- m.beat
}

// Collect implements prometheus.Collector.
func (m healthMetrics) Collect(out chan<- prometheus.Metric) {
	m.health.mu.Lock()
	now := m.health.now
	m.health.mu.Unlock()
	for _, state := range healthStates {
		value := 0.0
		if now.State == state {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, value, string(state))
	}
	beat := 0.0
	if !now.Beat.IsZero() && !now.Asleep {
		beat = float64(now.Beat.UnixMilli()) / 1000
	}
	out <- prometheus.MustNewConstMetric(m.beat, prometheus.GaugeValue, beat)
}
