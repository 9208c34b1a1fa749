package deviceplugin

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"kubelot.dev/services/resource/internal/devices"
)

func TestDevicesAreCountedByHealth(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		report          Report
		healthy, unwell float64
	}{
		{Report{Resource: "a/b", Devices: []devices.Device{{ID: "1", Healthy: true}, {ID: "2"}, {ID: "3"}}}, 1, 2},
		{Report{Resource: "a/b", Devices: []devices.Device{{ID: "1", Healthy: true}}}, 1, 0},
		{Report{Resource: "a/b", Away: true}, 0, 0},
	} {
		m.reported(c.report)
		healthy := testutil.ToFloat64(m.devices.WithLabelValues("a/b", "healthy"))
		unwell := testutil.ToFloat64(m.devices.WithLabelValues("a/b", "unhealthy"))
		if healthy != c.healthy || unwell != c.unwell {
			t.Errorf("%+v: %v healthy and %v not", c.report, healthy, unwell)
		}
	}
}
