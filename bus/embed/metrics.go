package embed

import (
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics show how full the store is and who reads slowly. Nothing is counted between two scrapes: the embedded server
// has the figures.
type metrics struct {
	stored, limit, pending, slow *prometheus.Desc

	mu    sync.Mutex
	life  *server.Server // nil between two lives
	names map[string]string
}

func newMetrics() *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &metrics{
		stored: desc("kubelot_bus_store_bytes", "What the bus keeps, in bytes."),
		limit: desc("kubelot_bus_store_limit_bytes",
			"What the bus may keep, in bytes; beyond it no state can be said any more."),
		pending: desc("kubelot_bus_pending_bytes",
			"Bytes that a daemon was sent and hasn't taken yet: how far it lags behind.", "reader"),
		slow: desc("kubelot_bus_slow_readers_total",
			"Connections that were closed because their reader lagged too far behind."),
	}
}

// alive states whose figures are shown from now on; names are the daemons by their keys. No server ends a life.
func (m *metrics) alive(life *server.Server, names map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life, m.names = life, names
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.stored, m.limit, m.pending, m.slow} {
		out <- d
	}
}

// Collect implements prometheus.Collector. What the server doesn't say is left out.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	life, names := m.life, m.names
	m.mu.Unlock()
	if life == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if info, err := life.Jsz(nil); err == nil {
		gauge(m.stored, float64(info.Store))
		gauge(m.limit, float64(info.Config.MaxStore))
	}
	out <- prometheus.MustNewConstMetric(m.slow, prometheus.CounterValue, float64(life.NumSlowConsumers()))
	conns, err := life.Connz(&server.ConnzOptions{Username: true})
	if err != nil {
		return
	}
	pending := map[string]float64{}
	for _, conn := range conns.Conns {
		if name := names[conn.AuthorizedUser]; name != "" {
			pending[name] += float64(conn.Pending)
		}
	}
	for name, bytes := range pending {
		gauge(m.pending, bytes, name)
	}
}
