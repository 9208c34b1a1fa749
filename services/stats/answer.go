package stats

import (
	"context"
	"errors"
	"sync"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/stats/internal/ttlcache"
)

const (
	// usageAge and diskAge are how old figures may be where the caller doesn't say. The kubelet's are up to 10 to 15 s
	// old; the runtime measures its layers every 10 s.
	usageAge = 5 * time.Second
	diskAge  = 10 * time.Second
	// usageTimeout bounds a reading of all cgroups; its callers wait less long for it.
	usageTimeout = 30 * time.Second
)

// errSlow is why a figure is left out that did not come in time.
var errSlow = errors.New("no answer in time, retrying")

// errNoUsage is why there is no answer: one without usage would make every pod look idle.
var errNoUsage = errors.New("can't read the cgroups, see the daemon's health")

// answers makes answers out of the readings. Its methods may be called at once.
type answers struct {
	cgroups *cgroups
	sources *sources
	group   *ttlcache.Group
	report  *report
	boot    time.Time
	// volumeAge is how old the figures of volumes may be (volumeStatsAggPeriod); negative means that there are none.
	volumeAge time.Duration
	// view makes a view of the pods; the loop does it.
	view func(ctx context.Context, uids []string) (view, error)
	// aside does work beside the loop, until the service ends, which waits for it. It is set before there is a view.
	aside func(asker context.Context, work func(ctx context.Context))

	// cells are the readings of all cgroups, by extent.
	cells [everything + rated + 1]ttlcache.Cell[*usage]
}

// extent is what a reading of the cgroups has besides CPU time and memory. One with more serves those who ask for less.
type extent int

const (
	// everything is all that the cgroups tell; rated is CPU use, for which a second sample may have to be waited for.
	everything extent = 1 << iota
	rated
)

// reply answers stats.summary. Where there is no summary, what it is made from could not be read.
func (a *answers) reply(ctx context.Context, req topic.SummaryRequest) (statsapi.Summary, error) {
	summary, err := a.summary(ctx, req, rated)
	if err != nil {
		err = bus.WithKind(bus.ErrUnavailable, err)
	}
	return summary, err
}

// summary makes a summary, with CPU use where the extent has it.
func (a *answers) summary(ctx context.Context, req topic.SummaryRequest, want extent) (statsapi.Summary, error) {
	defer a.report.answered("summary", time.Now())
	v, err := a.view(ctx, req.Pods)
	if err != nil {
		return statsapi.Summary{}, err
	}
	f := &figures{view: v, boot: a.boot, now: time.Now(), notBefore: req.NotBefore}
	if !req.NotBefore.IsZero() {
		a.sources.hurry()
	}
	var wg sync.WaitGroup
	if !req.OnlyCPUAndMemory || req.Processes {
		want |= everything
	}
	if !req.OnlyCPUAndMemory {
		wg.Go(func() { a.disks(ctx, f, req) })
	}
	f.usage = a.usage(ctx, v, want, len(req.Pods) > 0, req.MaxAge)
	wg.Wait()
	if req.OnlyCPUAndMemory && f.usage.node.At.IsZero() {
		return statsapi.Summary{}, errNoUsage
	}
	return build(f, req), nil
}

// usage reads the cgroups: of all pods together with others who ask at the same time, or of the few that are asked for.
// Where they can't be read the last reading serves for usageTimeout, and then there is none.
func (a *answers) usage(ctx context.Context, v view, want extent, few bool, maxAge time.Duration) *usage {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	if maxAge <= 0 {
		maxAge = usageAge
	}
	for i := range a.cells {
		last := a.cells[i].Peek()
		if extent(i)&want == want && !last.At.IsZero() && time.Since(last.At) <= maxAge && last.Value.has(v) {
			return last.Value
		}
	}
	if few {
		u, err := a.cgroups.usage(ctx, v, want)
		a.report.source("cgroups", err)
		return u
	}
	r := a.cells[want].Get(ctx, a.group, maxAge, usageTimeout, func(ctx context.Context) (*usage, error) {
		// The view is of now, not of the caller's: others share the reading.
		v, err := a.view(ctx, nil)
		if err != nil {
			return nil, err
		}
		u, err := a.cgroups.usage(ctx, v, want)
		a.report.source("cgroups", err)
		return u, nil
	})
	if r.Err == nil || time.Since(r.At) <= usageTimeout {
		return r.Value
	}
	a.report.source("cgroups", r.Err)
	return newUsage()
}

// has reports whether the usage has every pod of the view.
func (u *usage) has(v view) bool {
	for i := range v.pods {
		if _, ok := u.pods[v.pods[i].ref.UID]; !ok {
			return false
		}
	}
	return true
}

// disks reads all filesystems side by side.
func (a *answers) disks(ctx context.Context, f *figures, req topic.SummaryRequest) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	age, volumeAge := diskAge, a.volumeAge
	if req.MaxAge > 0 {
		age, volumeAge = req.MaxAge, req.MaxAge
	}
	var sandboxes []string
	if len(req.Pods) > 0 {
		for i := range f.view.pods {
			sandboxes = append(sandboxes, f.view.pods[i].sandbox)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if fs, ok := a.sources.rootfs(ctx, age); ok {
			f.rootFS = &fs
		}
	})
	wg.Go(func() { f.images, _ = a.sources.imageFS(ctx, age) })
	wg.Go(func() {
		if req.MaxAge <= 0 {
			f.layers, _ = a.sources.writable(ctx, age, sandboxes)
			return
		}
		told, cancel := context.WithTimeoutCause(ctx, patience/2, errSlow) // the rest is for counting
		f.layers, _ = a.sources.writable(told, age, sandboxes)
		cancel()
		a.recount(ctx, f, age)
	})
	wg.Go(func() { a.podDisks(ctx, f, age, volumeAge) })
	wg.Wait()
	if len(req.Pods) == 0 {
		a.sources.keep(f.view.pods)
	}
	a.report.source("volumes, logs and writable layers", a.sources.podProblems())
}

// podDisks reads the volumes and logs of the view's pods. Few are under way at a time (see sources.walk); what doesn't
// come in time is what it was before.
func (a *answers) podDisks(ctx context.Context, f *figures, age, volumeAge time.Duration) {
	f.files, f.volumes = map[string]podFiles{}, map[string]map[string]volumeUsage{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range f.view.pods {
		pod := &f.view.pods[i]
		uid := pod.ref.UID
		wg.Go(func() {
			if files, ok := a.sources.podFiles(ctx, pod, age); ok {
				mu.Lock()
				defer mu.Unlock()
				f.files[uid] = files
			}
		})
		if a.volumeAge < 0 {
			continue
		}
		volumes := map[string]volumeUsage{} // the outer map is this goroutine's
		f.volumes[uid] = volumes
		for _, v := range pod.volumes {
			wg.Go(func() {
				if u, ok := a.sources.volume(ctx, uid, v, volumeAge); ok {
					mu.Lock()
					defer mu.Unlock()
					volumes[v.name] = u
				}
			})
		}
	}
	wg.Wait()
}
