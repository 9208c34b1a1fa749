package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
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
	// forgetAfter is how often a daemon that doesn't come to rest unmaps what it hasn't used of its executable. What
	// it goes on using comes back by a few dozen minor faults.
	forgetAfter = time.Minute
)

// MemoryGivenBack is the debug line that says that free heap went back to the system.
const MemoryGivenBack = "at rest: free memory given back"

// SaveMemory sets how often memory is collected, and gives memory back at rest until ctx ends or stop is called, which
// waits for it. GOGC and GOMEMLIMIT in the unit's environment win. It is for processes that live long and do little.
func SaveMemory(ctx context.Context, log *slog.Logger) (stop func()) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, cancel := context.WithCancel(ctx)
	var resting sync.WaitGroup
	resting.Go(func() { rest(ctx, log) })
	return func() {
		cancel()
		resting.Wait()
	}
}

// rest gives memory back to the system whenever a burst of work is over, the first of which is the start, until ctx
// ends.
func rest(ctx context.Context, log *slog.Logger) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	allocated := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	ticker := time.NewTicker(restAfter)
	defer ticker.Stop()
	var last, returned uint64
	settled, forgotten := false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := allocated()
		rested := now-last < restBytes && (!settled || now-returned > worthBytes)
		if rested {
			settled, returned = true, now
			debug.FreeOSMemory()
			log.Debug(MemoryGivenBack)
		}
		if rested || time.Since(forgotten) >= forgetAfter {
			forgotten = time.Now()
			if err := forgetExecutable(); err != nil {
				log.Debug("pages of the executable stay mapped", "error", err)
			}
		}
		last = allocated()
	}
}

// forgetExecutable unmaps the pages of the executable's code and constants. Those that are needed again come back from the
// page cache by themselves; those of the start, which are most (package init, flags, decoding the configuration), don't. With
// the whole crew in one executable it is 37 of 50 MiB (docs/adr/0008).
func forgetExecutable() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	mappings, err := self.ProcMaps()
	if err != nil {
		return fmt.Errorf("read this process's mappings: %w", err)
	}
	var errs []error
	for _, m := range mappings {
		if m.Pathname != path || m.Perms.Write {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("madvise of %d KiB: %w", (m.EndAddr-m.StartAddr)>>10, errno))
		}
	}
	return errors.Join(errs...)
}
