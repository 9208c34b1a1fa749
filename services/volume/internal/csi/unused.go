package csi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/services/volume/internal/plugin"
)

const (
	// firstPause and lastPause bound the pause after a driver has failed to unstage a volume, the kubelet's.
	firstPause = 500 * time.Millisecond
	lastPause  = 2*time.Minute + 2*time.Second
	// lookAgain is when all volumes are looked at though nothing is known to have changed.
	lookAgain = 5 * time.Minute
)

// unused are the staged volumes that are looked at, or can't be unstaged yet, by their directories. It belongs to the
// goroutine of Run.
type unused map[string]*retry

// retry is how far one of them is.
type retry struct {
	busy bool
	// again asks for another look, because something has changed during this one.
	again     bool
	failures  int
	notBefore time.Time
	problem   string
}

// looked is the end of a look at a volume.
type looked struct {
	dir string
	err error
}

// Run unstages volumes that no pod has any more, those of an earlier process too, until ctx ends. The end of a pod
// doesn't wait for that. Each volume has a worker of its own: a driver that hangs holds up its own.
func (v *Volumes) Run(ctx context.Context) {
	u, results := unused{}, make(chan looked)
	var workers sync.WaitGroup
	defer workers.Wait()
	start := func(dir string) {
		workers.Go(func() {
			l := looked{dir, v.unstageIfUnused(plugin.Watched(ctx, "", nil), dir)}
			select {
			case results <- l:
			case <-ctx.Done():
			}
		})
	}
	look := func() []string {
		dirs, err := v.staged()
		if err != nil {
			v.ports.Log.Error("can't read which volumes are staged, retrying", "error", err)
		}
		return u.look(dirs, time.Now())
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due []string
		select {
		case <-ctx.Done():
			return
		case l := <-results:
			due = v.took(u, l)
		case <-v.drivers.Arrivals():
			signal(v.used.changes) // another set of drivers may need their volumes attached
			u.forgive()
			due = look()
		case <-v.freed:
			due = look()
		case <-timer.C:
			due = look()
		}
		for _, dir := range due {
			start(dir)
		}
		timer.Reset(u.pause(time.Now()))
	}
}

// look is due for all directories that there are. Those that have gone by another way are forgotten.
func (u unused) look(dirs []string, now time.Time) []string {
	for dir, r := range u {
		if !r.busy && !slices.Contains(dirs, dir) {
			delete(u, dir)
		}
	}
	return u.due(dirs, now)
}

// due are those of the directories that are to be looked at now; they are busy from here on.
func (u unused) due(dirs []string, now time.Time) []string {
	return slices.DeleteFunc(dirs, func(dir string) bool {
		r := u[dir]
		switch {
		case r == nil:
			u[dir] = &retry{busy: true}
			return false
		case r.busy:
			r.again = true
		case !now.Before(r.notBefore):
			r.busy = true
			return false
		}
		return true
	})
}

// forgive ends all pauses.
func (u unused) forgive() {
	for _, r := range u {
		r.notBefore = time.Time{}
	}
}

// pause is the time until the next look.
func (u unused) pause(now time.Time) time.Duration {
	next := lookAgain
	for _, r := range u {
		if !r.busy {
			next = min(next, max(time.Millisecond, r.notBefore.Sub(now)))
		}
	}
	return next
}

// took takes the end of a look, and returns what is to be looked at again at once.
func (v *Volumes) took(u unused, l looked) []string {
	r := u[l.dir]
	again := r.again
	r.busy, r.again = false, false
	if l.err == nil {
		delete(u, l.dir)
	} else {
		r.failures++
		r.notBefore = time.Now().Add(pause.After(r.failures, firstPause, lastPause))
		if text := l.err.Error(); text != r.problem {
			r.problem = text
			v.ports.Log.Warn("a volume that no pod has can't be unstaged, retrying", "path", l.dir, "error", text)
		}
	}
	if !again {
		return nil
	}
	return u.due([]string{l.dir}, time.Now())
}

func (v *Volumes) unstageIfUnused(ctx context.Context, dir string) error {
	r, err := readRecord(dir)
	if err != nil || r == nil {
		return err
	}
	t := target{driver: r[keyDriver], handle: r[keyHandle], name: r[keyHandle], persistent: true}
	if name, ok := v.stagedBlock(dir); ok {
		t.name, t.block = name, true
	}
	if v.stageDir(t) != dir || !driverName.MatchString(t.driver) {
		return errors.New("its record is of another volume: remove it by hand if nothing is mounted below it")
	}
	giveBack, err := v.locks.Take(ctx, t.key())
	if err != nil {
		return err
	}
	defer giveBack()
	if t.block {
		if err := v.takeLost(ctx, t); err != nil {
			return err
		}
	}
	return v.settle(ctx, task{target: t})
}
