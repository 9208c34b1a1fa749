package evict

import (
	"cmp"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
)

// Begun is an eviction that an earlier process has begun.
type Begun struct {
	UID string
	// Pod is the pod's namespace and name.
	Pod string
	// Until is the end of its grace period; Soft is true if that is longer than a hard threshold's.
	Until time.Time
	Soft  bool
}

// Underway are the evictions that are under way when gc starts. The one to wait for comes last: that of a hard
// threshold whose grace period ends last, or else that of a soft one. podsync doesn't say who asked for the end of a
// pod, so any end counts that is as quick as an eviction: it frees what the pod uses just as soon. most is
// evictionMaxPodGracePeriod.
func Underway(pods map[string]topic.Pod, most int32, now time.Time) []Begun {
	var all []Begun
	for uid, p := range pods {
		if p.Lifecycle == topic.Syncing || p.Released || p.Pod == nil || p.Deadline == nil || p.GracePeriodSeconds == nil ||
			(Candidate{Pod: p.Pod, Static: p.Static()}).Critical() {
			continue
		}
		b := Begun{UID: uid, Pod: p.Pod.Namespace + "/" + p.Pod.Name, Soft: *p.GracePeriodSeconds > hardGrace}
		if b.Soft && most >= 0 && *p.GracePeriodSeconds > int64(most) {
			continue
		}
		// A clock that was set back since makes the wait no longer.
		left := min(p.Deadline.Sub(now), time.Duration(*p.GracePeriodSeconds)*time.Second)
		b.Until = now.Add(left)
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Begun) int {
		return cmp.Or(before(a.Soft, b.Soft), a.Until.Compare(b.Until), cmp.Compare(a.UID, b.UID))
	})
	return all
}
