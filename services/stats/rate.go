package stats

import (
	"maps"
	"sync"
	"time"
)

const (
	// rateWindow is the least time that a rate is taken over where there is a choice.
	rateWindow = 5 * time.Second
	// rateMemory is how old the beginning of a rate may be: one over an hour says nothing of now.
	rateMemory = time.Minute
)

// rates turn CPU time into CPU use by means of earlier samples of the same cgroup. At most two are kept for each.
type rates struct {
	mu      sync.Mutex
	points  map[string][2]point
	cleaned time.Time
}

// point is CPU time in nanoseconds at a moment; the zero value is none.
type point struct {
	at    time.Time
	total uint64
}

func newRates() *rates { return &rates{points: map[string][2]point{}} }

// add takes a sample, forgets those of cgroups that had none for long, and returns the CPU use since an earlier one in
// billionths of a core, if there is one.
func (r *rates) add(cgroup string, now point) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, rate, ok := advance(r.points[cgroup], now)
	r.points[cgroup] = next
	if now.at.Sub(r.cleaned) > rateMemory {
		r.cleaned = now.at
		maps.DeleteFunc(r.points, func(_ string, kept [2]point) bool {
			return now.at.Sub(kept[0].at) > rateMemory && now.at.Sub(kept[1].at) > rateMemory
		})
	}
	return rate, ok
}

// advance decides which samples to keep, older first, and over which of them to take the rate: the newest that is a
// window away, else the oldest.
func advance(kept [2]point, now point) (next [2]point, rate uint64, ok bool) {
	for i := range kept {
		// A cgroup that was created again under the same name starts at zero.
		if kept[i].total > now.total || now.at.Sub(kept[i].at) > rateMemory {
			kept[i] = point{}
		}
	}
	older, newer := kept[0], kept[1]
	if older.at.IsZero() {
		older, newer = newer, point{}
	}
	from := older
	if !newer.at.IsZero() && now.at.Sub(newer.at) >= rateWindow {
		from = newer
	}
	switch {
	case older.at.IsZero():
		older = now
	case newer.at.IsZero():
		newer = now
	case now.at.Sub(newer.at) >= rateWindow:
		older, newer = newer, now
	}
	took := now.at.Sub(from.at)
	if from.at.IsZero() || took < secondSample/2 { // over a moment it would be any figure
		return [2]point{older, newer}, 0, false
	}
	return [2]point{older, newer}, uint64(float64(now.total-from.total) / took.Seconds()), true
}
