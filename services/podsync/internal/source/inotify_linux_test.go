package source

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Notes that the kernel has dropped may have been of any manifest.
func TestDroppedNotesAskForAScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The kernel's own note of that has no name (inotify(7), IN_Q_OVERFLOW).
		notes := make(chan note, 1)
		notes <- note{mask: unix.IN_Q_OVERFLOW}
		r := &fileRun{
			cfg: FileConfig{Every: time.Hour}, watcher: &watcher{notes: notes},
			act: activity{writing: map[string]bool{"a.yaml": true}, closed: map[string]bool{}},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.wait(ctx, 0)
		if ctx.Err() != nil || len(r.act.writing) > 0 {
			t.Errorf("no scan within a minute (%v), writers %v", ctx.Err(), r.act.writing)
		}
	})
}
