package evict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Freeing is disk space that the runtime may still be freeing: containerd frees what a removed container has written
// some time later, on a busy machine half a minute. While it may end a shortage nobody else is evicted for that.
type Freeing struct {
	// Pod is whose space it is, UID its UID; empty for that of containers that were dead.
	Pod, UID string
	// Becomes is what is available of each signal that waits, once all is free that the pod used. It is nil where nobody
	// knows: then each signal waits.
	Becomes map[Signal]int64
	// Until bounds the wait.
	Until time.Time
}

// FreedBy is what the eviction of the pod frees, by its last figures and by what is available before. What is being
// freed of another pod already is available then too.
func FreedBy(r Ranked, l Layout, obs Observations, already Freeing, now time.Time) Freeing {
	f := Freeing{Pod: r.Pod.Namespace + "/" + r.Pod.Name, UID: string(r.Pod.UID)}
	if !r.Known {
		return f
	}
	if !already.Until.IsZero() && now.After(already.Until) {
		already = Freeing{}
	}
	f.Becomes = map[Signal]int64{}
	for s, o := range obs {
		if r.Stats != nil { // else it uses nothing
			f.Becomes[s] = max(o.Available, already.Becomes[s]) + usage(s, l, r.Pod, r.Stats)
		}
	}
	return f
}

// Only leaves out the signals that are short of nothing: what they are short of later is not what was being freed.
func (f Freeing) Only(due []Due) Freeing {
	f.Becomes = maps.Clone(f.Becomes)
	maps.DeleteFunc(f.Becomes, func(s Signal, _ int64) bool {
		return !slices.ContainsFunc(due, func(d Due) bool { return d.Signal == s })
	})
	return f
}

// Awaited reports whether the space may end the shortage, and is still waited for.
func (f Freeing) Awaited(t Threshold, o Observation, now time.Time) bool {
	becomes, waits := f.Becomes[t.Signal]
	enough := f.Becomes == nil || waits && becomes >= t.limit(o, true).Value()
	return enough && t.Signal.Disk() && now.Before(f.Until)
}

// String says what is waited for.
func (f Freeing) String() string {
	return fmt.Sprintf("no pod is evicted while the runtime frees the space of %s; the wait ends at %s",
		cmp.Or(f.Pod, "dead containers"), f.Until.UTC().Format(time.TimeOnly))
}
