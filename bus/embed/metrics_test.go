package embed

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
)

// The figures are those of the server that runs, also after a restart of the bus.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := startBus(t, func(b *liveBus) { b.options.Metrics = registry })
	fillBus(t, b)
	figures := map[string]float64{}
	readers := 0
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			figures[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if family.GetName() == "kubelot_bus_pending_bytes" && m.GetLabel()[0].GetValue() == "writer" {
				readers++
			}
		}
	}
	stored, limit := figures["kubelot_bus_store_bytes"], figures["kubelot_bus_store_limit_bytes"]
	if stored <= 0 || limit < stored || readers != 1 || len(figures) != 4 {
		t.Errorf("%d readers, %v", readers, figures)
	}
	b.halt(t)
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("a bus that has ended shows %v, %v", families, err)
	}
}

// A server that hangs keeps no scrape waiting, and is asked once. When it goes on its figures are shown again.
func TestMetricsOfAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		goesOn, asked := make(chan struct{}), atomic.Int32{}
		m.read = func(serving) []prometheus.Metric {
			asked.Add(1)
			<-goesOn
			return []prometheus.Metric{prometheus.MustNewConstMetric(m.slow, prometheus.CounterValue, 7)}
		}
		m.alive(serving{server: &server.Server{}})
		scrape := func() int {
			found := make(chan prometheus.Metric, 10)
			m.Collect(found)
			return len(found)
		}
		for range 3 {
			if began, n := time.Now(), scrape(); n != 0 || time.Since(began) != scrapePatience {
				t.Errorf("%d figures after %s", n, time.Since(began))
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		close(goesOn)
		synctest.Wait()
		if n := scrape(); n != 1 || asked.Load() != 2 {
			t.Errorf("%d figures, it was asked %d times", n, asked.Load())
		}
	})
}
