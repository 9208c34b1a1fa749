package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent keeps the small heaps of the crew small: a few megabytes live in each. 400 took a tenth less CPU time while a
	// hundred pods started, and left 25 MiB of spans behind that are in use in part only (docs/adr/0006).
	gcPercent = 50
	// restAfter is how often a daemon looks whether it has come to rest, and restBytes what it may allocate meanwhile
	// and still be at rest.
	restAfter = 5 * time.Second
	restBytes = 1 << 20
	// worthBytes is what must have been allocated for the memory to be worth giving back: collecting costs about a millisecond.
	worthBytes = 4 << 20
)

// tuneMemory sets how often memory is collected. GOGC and GOMEMLIMIT in the unit's environment win.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// rest gives memory back to the system whenever a burst of work is over, until ctx ends.
func rest(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	allocated := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	ticker := time.NewTicker(restAfter)
	defer ticker.Stop()
	var last, returned uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := allocated()
		if now-last < restBytes && now-returned > worthBytes {
			debug.FreeOSMemory()
			now = allocated()
			returned = now
		}
		last = now
	}
}
