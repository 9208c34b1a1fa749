package crash

import (
	"os"
	"syscall"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// bed is shared by the tests that need a node of the usual kind.
var bed *kit.Bed

func TestMain(m *testing.M) {
	// Tests of CSI ask drivers how full their volumes are, again and again.
	os.Exit(kit.Main(m, &bed, kit.Options{Config: "volumeStatsAggPeriod: 1s\n"}))
}

// kill ends one of the bed's daemons with SIGKILL, as soon as it runs.
func kill(t *testing.T, b *kit.Bed, daemon string) {
	t.Helper()
	b.Signal(t, daemon, syscall.SIGKILL)
}
