package embed

import (
	"testing"

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
