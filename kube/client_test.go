package kube

import (
	"path/filepath"
	"testing"
)

// All clients for other API groups share one limit, and without a limit they get none of client-go's defaults.
func TestLimits(t *testing.T) {
	qps := int32(5)
	for name, test := range map[string]struct {
		options Options
		want    float32
	}{
		"as configured":     {Options{}.WithLimits(&qps, 7), 5},
		"no limit":          {Options{}, 0},
		"taken back":        {Options{}.WithLimits(&qps, 7).WithLimits(nil, 0), 0},
		"no burst is given": {Options{QPS: 5}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Open(filepath.Join(t.TempDir(), "kubeconfig"), test.options)
			if err != nil {
				t.Fatal(err)
			}
			cfg, _ := c.Config()
			switch limiter := cfg.RateLimiter; {
			case test.want == 0 && (limiter != nil || cfg.QPS >= 0):
				t.Errorf("limiter %v, QPS %v, want none", limiter, cfg.QPS)
			case test.want != 0 && (limiter == nil || limiter.QPS() != test.want || !limiter.TryAccept()):
				t.Errorf("limiter %v, want one of %v that accepts a first request", limiter, test.want)
			}
		})
	}
}
