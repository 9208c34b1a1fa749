package evict

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A threshold that is accepted can be met and relieved: it is between nothing and, where it is a share, all there is.
func FuzzThresholds(f *testing.F) {
	for _, text := range []string{
		"100Mi", "10%", "7%", "0%", "100%", "0.5%", "NaN%", "-0%", "+Inf%", "1e3", "-1", "0",
		"1e400", "1n", "0x1p-2%", "", "%", "5% ",
	} {
		f.Add(text, "1Gi", "1m30s", int64(1<<40))
	}
	f.Add("10%", "NaN%", "-1s", int64(0))
	f.Fuzz(func(t *testing.T, value, reclaim, grace string, capacity int64) {
		const signal = string(MemoryAvailable)
		all, err := Thresholds(Settings{
			Hard: map[string]string{signal: value}, Soft: map[string]string{signal: value},
			SoftGrace: map[string]string{signal: grace},
			Reclaim:   map[string]string{signal: reclaim},
		})
		if err != nil {
			return
		}
		if capacity < 0 {
			t.Skip("no machine has that")
		}
		for _, o := range all {
			o.check(t, capacity)
		}
	})
}

func (t Threshold) check(test *testing.T, capacity int64) {
	test.Helper()
	limit := t.Value.of(t.Signal, capacity)
	if limit.Sign() < 0 || t.Value.Quantity == nil && limit.Cmp(*resource.NewQuantity(capacity, resource.BinarySI)) > 0 {
		test.Errorf("%s is %s of %d", t, limit, capacity)
	}
	if t.Reclaim != nil && t.Reclaim.of(t.Signal, capacity).Sign() < 0 {
		test.Errorf("%s is relieved by less than nothing", t)
	}
	if t.Grace < 0 {
		test.Errorf("%s has the grace period %s", t, t.Grace)
	}
	if o := (Observation{Available: capacity, Capacity: capacity}); Met(t, o, false) && !Met(t, o, true) {
		test.Errorf("%s is met and relieved at once", t)
	}
	_ = t.Figures(Observation{Capacity: capacity})
}
