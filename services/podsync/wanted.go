package podsync

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/source"
)

// wanted is what the pod sources want, and what was reported of it.
type wanted struct {
	merge  *source.Merge
	pods   []source.Pod
	report *events.Reporter
	// problem reports a pod that can't be used to the operator.
	problem func(source.Problem)
	// conflicts are those that were reported.
	conflicts map[source.Problem]bool
	// latest are the mirror pods that the API server has, mirrors those that were stated.
	latest  []topic.MirrorPod
	mirrors map[string]bool
	// unreported is true where pod.sources may have to be written, at once where urgent is; reported is what it says.
	unreported, urgent bool
	reported           *topic.Sources
	stating            pace
}

func newWanted(sources []topic.Source, report *events.Reporter, problem func(source.Problem)) wanted {
	return wanted{merge: source.NewMerge(sources...), report: report, problem: problem, mirrors: map[string]bool{}}
}

// take takes what a source delivers, and reports whether it changes anything.
func (w *wanted) take(set source.Set, now time.Time) bool {
	if !w.merge.Set(set, now) {
		return false
	}
	desired := w.merge.Desired()
	w.pods, w.latest = desired.Pods, desired.Mirrors
	w.urgent = w.urgent || set.Source != topic.SourceAPI
	w.reportConflicts(desired.Conflicts)
	return true
}

// reportConflicts reports each pod that has the name of another, once.
func (w *wanted) reportConflicts(conflicts []source.Problem) {
	now := map[source.Problem]bool{}
	for _, p := range conflicts {
		now[p] = true
		if !w.conflicts[p] {
			w.problem(p)
		}
	}
	w.conflicts = now
}

func (w *wanted) uids() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for i := range w.pods {
		uids[w.pods[i].Pod.UID] = true
	}
	return uids
}

// reportMirrors states the mirror pods that the API server has, once it has said so.
func (w *wanted) reportMirrors() {
	if slices.Contains(w.merge.Waiting(), topic.SourceAPI) {
		return
	}
	mirrors := map[string]bool{}
	for _, m := range w.latest {
		mirrors[m.UID] = true
		w.report.Mirror(m)
	}
	for uid := range w.mirrors {
		if !mirrors[uid] {
			w.report.MirrorGone(uid)
		}
	}
	w.mirrors = mirrors
}

// reportSources states which pods are wanted, if that has changed. Changes of the API server's pods are gathered, as
// pod.update has them already. Changes of static pods, and of which sources are ready, are stated at once.
func (w *wanted) reportSources(now time.Time) {
	if !w.unreported {
		return
	}
	s := topic.Sources{Ready: w.merge.Ready(), Waiting: w.merge.Waiting()}
	urgent := w.urgent || w.reported == nil || s.Ready != w.reported.Ready ||
		!slices.Equal(s.Waiting, w.reported.Waiting)
	if !urgent && w.stating.rests(now) {
		return
	}
	w.unreported, w.urgent = false, false
	for i := range w.pods {
		s.Pods = append(s.Pods, string(w.pods[i].Pod.UID))
	}
	if urgent || !slices.Equal(s.Pods, w.reported.Pods) {
		w.reported = &s
		w.stating.until = now.Add(time.Duration(len(s.Pods)) * perPod)
		w.report.Sources(s)
	}
}
