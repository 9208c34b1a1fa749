package config_test

import (
	"testing"

	tracingapi "k8s.io/component-base/tracing/api/v1"

	"kubelot.dev/daemon/config"
)

func TestTracing(t *testing.T) {
	endpoint, none, rate := "dns:///collector:4317", "", int32(100)
	for name, c := range map[string]struct {
		field    *tracingapi.TracingConfiguration
		endpoint string
		rate     int32
	}{
		"not there":   {nil, "localhost:4317", 0},
		"rate alone":  {&tracingapi.TracingConfiguration{SamplingRatePerMillion: &rate}, "localhost:4317", 100},
		"no endpoint": {&tracingapi.TracingConfiguration{Endpoint: &none}, "localhost:4317", 0},
		"both": {
			&tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: &rate}, endpoint, 100,
		},
	} {
		var k config.Config
		k.Kubelet.Tracing = c.field
		if endpoint, rate := config.Tracing(&k); endpoint != c.endpoint || rate != c.rate {
			t.Errorf("%s: %d to %s, want %d to %s", name, rate, endpoint, c.rate, c.endpoint)
		}
	}
}
