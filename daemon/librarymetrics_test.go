package daemon

import (
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// A library that registers something else, or otherwise, would keep it.
func TestLibraryMetricsAreDropped(t *testing.T) {
	count := func() (n int) {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return len(families)
	}
	before := count()
	dropLibraryMetrics()
	if after := count(); before < 50 || after > 10 {
		t.Errorf("%d metrics are left of %d, want at most 10", after, before)
	}
}
