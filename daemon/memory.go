package daemon

import (
	"os"
	"runtime/debug"
)

// tuneMemory keeps the small heaps of ten daemons small: a few megabytes live in each, so that collecting
// twice as often costs little and halves what is held beyond them. GOGC and GOMEMLIMIT in
// the unit's environment win.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}
