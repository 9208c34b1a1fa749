package podsync

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/daemon/loop"
)

// slowAfter is how long work next to the loop may take before it is logged.
const slowAfter = 30 * time.Second

// tasks are the goroutines of a run of the dispatcher, and what they have for its loop. The loop itself waits for
// nothing outside of this process: whatever may wait for a disk, for sysfs or for D-Bus is work for slow.
type tasks struct {
	*loop.Loop
	// ctx is that of the run, from its beginning; opCtx is for steps of workers, which may end later.
	ctx, opCtx context.Context

	// working is since when work is under way, by its key. It belongs to the loop.
	working map[string]time.Time
}

func newTasks(conn *bus.Conn) *tasks {
	return &tasks{Loop: loop.New(conn), working: map[string]time.Time{}}
}

// slow does work in a goroutine of its own, and has the loop run the answer. There is one at a time for each key: slow
// reports whether it has begun this one. Only the loop calls it.
func (t *tasks) slow(key string, work func() (answer func())) bool {
	if _, busy := t.working[key]; busy {
		return false
	}
	t.working[key] = time.Now()
	t.Go(func() {
		answer := work()
		t.Do(t.ctx, func() {
			delete(t.working, key)
			answer()
		})
	})
	return true
}

// warn logs the work that takes long: nothing else shows it, as the loop goes on.
func (t *tasks) warn(log *slog.Logger, now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(t.working)) {
		if took := now.Sub(t.working[key]); took >= slowAfter {
			log.Warn("slow work has not ended; the pods that need it wait, others don't", "work", key,
				"since", took.Round(time.Second))
		}
	}
}
