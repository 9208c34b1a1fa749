package daemon

import (
	"os"
	"os/exec"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// A library that registers something else, or otherwise, would keep it. Other tests start daemons, which drop it too,
// so the test has a process of its own.
func TestLibraryMetricsAreDropped(t *testing.T) {
	const alone = "DAEMON_TEST_ALONE"
	if os.Getenv(alone) == "" {
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLibraryMetricsAreDropped$")
		self.Env = append(os.Environ(), alone+"=1")
		if out, err := self.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
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
