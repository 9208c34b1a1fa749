// Package memory keeps a process that lives long and does little as small as it can be: it collects often, gives
// memory back when a burst of work is over, and unmaps what it doesn't use of its executable (docs/adr/0006, 0008).
package memory

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// gcPercent keeps the small heaps of the crew small: a few megabytes live in each. 400 took a tenth less CPU time
	// while a hundred pods started, and left 25 MiB of spans behind that are in use in part only (docs/adr/0006).
	gcPercent = 50
	// restAfter is how often a daemon looks whether it has come to rest, and restBytes what it may allocate meanwhile
	// and still be at rest.
	restAfter = 5 * time.Second
	restBytes = 1 << 20
	// worthBytes is what must have been allocated for the memory to be worth giving back: collecting costs about a
	// millisecond.
	worthBytes = 4 << 20
	// lateAfter is how many times a daemon must be found at rest after it gave memory back until it does so once more:
	// caches that are dropped by timers of some ten seconds are free only then. lastAfter is likewise until the last time,
	// for what the bus does each minute: it loads blocks of its store, in buffers of 4 MiB.
	lateAfter = 4
	lastAfter = 12
	// collections are how many collections it takes, with cleanupTime between them for the cleanups.
	collections = 3
	cleanupTime = 20 * time.Millisecond
	// forgetAfter is how often a daemon that doesn't come to rest unmaps what it hasn't used of its executable. What
	// it goes on using comes back by a few dozen minor faults.
	forgetAfter = time.Minute
)

// GivenBack is the debug line that says that free heap went back to the system.
const GivenBack = "at rest: free memory given back"

// ForgoProfile ends the sampling of allocations: each sample takes some memory for good, up to 1 MiB and more in a
// daemon that allocates much. It is for processes that serve no profiles.
func ForgoProfile() { runtime.MemProfileRate = 0 }

// Save sets how often memory is collected, and gives memory back at rest until ctx ends or stop is called, which waits
// for it. GOGC and GOMEMLIMIT in the unit's environment win. daemons is how many the process has: each does a little
// now and then.
func Save(ctx context.Context, log *slog.Logger, daemons int) (stop func()) {
	collectOften()
	ctx, cancel := context.WithCancel(ctx)
	var resting sync.WaitGroup
	resting.Go(func() { rest(ctx, log, uint64(daemons)) })
	return func() {
		cancel()
		resting.Wait()
	}
}

// collectOften sets how often memory is collected, unless the environment says so.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// rest gives memory back to the system whenever a burst of work is over, the first of which is the start, until ctx
// ends.
func rest(ctx context.Context, log *slog.Logger, daemons uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	allocated := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	ticker := time.NewTicker(restAfter)
	defer ticker.Stop()
	w := restWatch{daemons: daemons}
	program, forgotten := openExecutable(log), time.Now()
	defer program.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		rested := w.look(allocated())
		if rested {
			collect(ctx)
			log.Debug(GivenBack)
			w.gaveBack(allocated())
		}
		if rested || time.Since(forgotten) >= forgetAfter {
			forgotten = time.Now()
			program.forget()
		}
	}
}

// restWatch decides when it is worth giving memory back, from what was allocated since the start, in bytes.
type restWatch struct {
	daemons        uint64 // in the process, if more than one: each does a little at rest
	seen, returned uint64
	settled        bool // the start is over
	late           int  // looks at rest until memory is given back once more
	last           bool // that is the last time
}

// look takes in what was allocated until now, and reports whether the process is at rest and has something to give
// back. It is called every restAfter.
func (w *restWatch) look(allocated uint64) bool {
	quiet := allocated-w.seen < max(w.daemons, 1)*restBytes
	w.seen = allocated
	switch {
	case !quiet:
		return false
	case !w.settled || allocated-w.returned > worthBytes:
		w.late, w.last = lateAfter, false
		return true
	case w.late == 0:
		return false
	}
	w.late--
	due := w.late == 0
	if due && !w.last {
		w.late, w.last = lastAfter, true
	}
	return due
}

// gaveBack notes that memory was given back.
func (w *restWatch) gaveBack(allocated uint64) {
	w.seen, w.returned, w.settled = allocated, allocated, true
}

// collect gives back all that isn't in use. That takes several collections: the first finds what only weak pointers and
// cleanups know, the cleanups may put it into a sync.Pool, and a pool lets go of it with the second collection after
// that.
func collect(ctx context.Context) {
	for range collections {
		debug.FreeOSMemory()
		select {
		case <-time.After(cleanupTime):
		case <-ctx.Done():
			return
		}
	}
}
