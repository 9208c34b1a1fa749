package embed

import (
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/internal/layout"
)

// scrapePatience is how long a scrape waits for the embedded server.
const scrapePatience = 2 * time.Second

// metrics show how full the store is and who reads slowly. Nothing is counted between two scrapes: the embedded server
// has the figures. While its store hangs it keeps everybody waiting who asks for them. So one question is under way at
// a time, and a scrape without an answer has the daemon's other metrics: they say that its loop hangs.
type metrics struct {
	stored, limit, pending, slow *prometheus.Desc
	// read asks a server.
	read func(of serving) []prometheus.Metric

	mu    sync.Mutex
	life  serving
	asked *question // nil while nobody is asked
}

// serving is one life of the embedded server.
type serving struct {
	server *server.Server // nil between two lives
	// names are the daemons by their keys.
	names  map[string]string
	states *bound
}

// question is what the embedded server is asked; found is there once done is closed.
type question struct {
	done  chan struct{}
	found []prometheus.Metric
}

func newMetrics() *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m := &metrics{
		stored: desc("kubelot_bus_store_bytes", "What the bus keeps of states, in bytes."),
		limit: desc("kubelot_bus_store_limit_bytes",
			"What the bus may keep of states, in bytes; beyond it new pods wait."),
		pending: desc("kubelot_bus_pending_bytes",
			"Bytes that a daemon was sent and hasn't taken yet: how far it lags behind.", "reader"),
		slow: desc("kubelot_bus_slow_readers_total",
			"Connections that were closed because their reader lagged too far behind."),
	}
	m.read = m.figures
	return m
}

// alive states whose figures are shown from now on.
func (m *metrics) alive(of serving) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life = of
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.stored, m.limit, m.pending, m.slow} {
		out <- d
	}
}

// Collect implements prometheus.Collector. What the server doesn't say in time is left out.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	q := m.ask()
	if q == nil {
		return
	}
	timer := time.NewTimer(scrapePatience)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
		return
	}
	for _, metric := range q.found {
		out <- metric
	}
}

// ask begins a question, unless one is under way; nil without a server.
func (m *metrics) ask() *question {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked != nil || m.life.server == nil {
		return m.asked
	}
	q := &question{done: make(chan struct{})}
	m.asked = q
	of := m.life
	go func() {
		q.found = m.read(of)
		m.mu.Lock()
		m.asked = nil
		m.mu.Unlock()
		close(q.done)
	}()
	return q
}

// figures are those of the server.
func (m *metrics) figures(of serving) []prometheus.Metric {
	var found []prometheus.Metric
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		found = append(found, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
	}
	all, err := of.server.JszAccount(&server.JSzOptions{Account: of.server.GlobalAccount().Name, Streams: true})
	if err == nil {
		for _, stream := range all.Streams {
			if stream.Name == layout.StreamState {
				gauge(m.stored, float64(stream.State.Bytes))
				gauge(m.limit, float64(of.states.limit.Load()))
			}
		}
	}
	slow := float64(of.server.NumSlowConsumers())
	found = append(found, prometheus.MustNewConstMetric(m.slow, prometheus.CounterValue, slow))
	conns, err := of.server.Connz(&server.ConnzOptions{Username: true})
	if err != nil {
		return found
	}
	pending := map[string]float64{}
	for _, conn := range conns.Conns {
		if name := of.names[conn.AuthorizedUser]; name != "" {
			pending[name] += float64(conn.Pending)
		}
	}
	for name, bytes := range pending {
		gauge(m.pending, bytes, name)
	}
	return found
}
