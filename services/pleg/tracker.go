package pleg

import (
	"maps"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
)

const (
	// parallel bounds the readings under way; one that is slow (see slowAfter) doesn't count.
	parallel = 8
	// rereadAfter is when a pod is read again though the lists agree, for what they don't show.
	rereadAfter = 10 * time.Minute
	// partialRetry is the first pause before a pod is read again after a partial reading; it doubles up to
	// partialRetryMax.
	partialRetry, partialRetryMax = time.Second, 30 * time.Second
)

// unseenRetries are the pauses before a pod is read again that doesn't show what an event said. After the last one the
// lists are believed.
var unseenRetries = []time.Duration{
	5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 300 * time.Millisecond, time.Second,
}

// tracker knows what was last seen of each pod and decides which to read next. It has no clock, does
// no I/O and belongs to one goroutine. Its words (dirty, unseen, partial) are those of package observe.
type tracker struct {
	pods map[string]*pod
	// owner is the pod of each known container and sandbox, for events that don't tell it.
	owner map[string]string
	// queue are the dirty pods that aren't being read, in the order in which they became so.
	queue []string
	// quick are the readings under way that count against the bound.
	quick int
	// relist are the pods whose reading completes the last comparison with the lists; nil when none is open.
	relist map[string]bool
}

type pod struct {
	// seen is the last observation; nil before the first.
	seen *topic.PodObservation
	// published means that the bus has a value for the pod.
	published bool
	readAt    time.Time
	// dirty pods must be read; queued ones are in the queue; slow ones are read beyond the bound.
	dirty, queued, reading, slow bool
	// failed pods couldn't be read at all the last time.
	failed bool
	// unseen is what the last event said of an object, by its ID, as long as no reading shows it.
	unseen map[string]runtimeapi.ContainerEventType
	// unseenReads and partialReads count the readings in a row that left something unseen, or were partial.
	unseenReads, partialReads int
	// wake is when the pod becomes dirty by itself; zero if it doesn't.
	wake time.Time
}

func newTracker() *tracker {
	return &tracker{pods: map[string]*pod{}, owner: map[string]string{}}
}

func (t *tracker) pod(uid string) *pod {
	p := t.pods[uid]
	if p == nil {
		p = &pod{unseen: map[string]runtimeapi.ContainerEventType{}}
		t.pods[uid] = p
	}
	return p
}

// mark makes a pod dirty.
func (t *tracker) mark(uid string) {
	p := t.pod(uid)
	p.dirty, p.wake = true, time.Time{}
	if !p.reading && !p.queued {
		p.queued = true
		t.queue = append(t.queue, uid)
	}
}

// retained notes a pod of which the bus has a value from an earlier run.
func (t *tracker) retained(uid string) {
	t.pod(uid).published = true
	t.mark(uid)
}

// event takes note of an event. It returns the pod and when to wake it; a zero pause means that it is
// dirty now. known is false if the event's pod isn't known: then only the lists help.
func (t *tracker) event(now time.Time, e event) (uid string, pause time.Duration, known bool) {
	uid = e.pod
	if uid == "" {
		uid = t.owner[e.object]
	}
	if uid == "" {
		return "", 0, false
	}
	p := t.pod(uid)
	p.unseen[e.object], p.unseenReads = e.kind, 0
	if pause = e.patience(); pause > 0 {
		return uid, t.wakeIn(p, now, pause), true
	}
	t.mark(uid)
	return uid, 0, true
}

// wakeIn has the pod wake after a pause, which it returns; zero where it wakes earlier or is dirty anyway.
func (t *tracker) wakeIn(p *pod, now time.Time, pause time.Duration) time.Duration {
	at := now.Add(pause)
	if (p.dirty && !p.reading) || (!p.wake.IsZero() && !p.wake.After(at)) {
		return 0
	}
	p.wake = at
	return pause
}

// woken makes a pod dirty whose pause is over. Another pause may have replaced the one that ended.
func (t *tracker) woken(now time.Time, uid string) {
	if p := t.pods[uid]; p != nil && !p.wake.IsZero() && !p.wake.After(now) {
		t.mark(uid)
	}
}

// beginNext begins the next reading: it returns the pod to read, with the earlier observation.
func (t *tracker) beginNext() (uid string, earlier *topic.PodObservation, ok bool) {
	if len(t.queue) == 0 || t.quick >= parallel {
		return "", nil, false
	}
	uid = t.queue[0]
	t.queue = t.queue[1:]
	p := t.pods[uid]
	p.queued, p.dirty, p.reading = false, false, true
	t.quick++
	return uid, p.seen, true
}

// lagging lets others be read at the same time as a pod whose reading takes long.
func (t *tracker) lagging(uid string) {
	if p := t.pods[uid]; p != nil && p.reading && !p.slow {
		p.slow = true
		t.quick--
	}
}

// outcome is what follows from a reading.
type outcome struct {
	// publish and remove exclude each other; neither means that nothing changed.
	publish, remove bool
	changes         []string
	// wake is when to wake the pod; zero means not.
	wake time.Duration
}

// done takes the end of a reading; err means that not even the lists could be read.
func (t *tracker) done(now time.Time, uid string, seen topic.PodObservation, err error) outcome {
	p := t.pods[uid]
	p.reading = false
	if p.slow {
		p.slow = false
	} else {
		t.quick--
	}
	if p.dirty {
		p.queued = true
		t.queue = append(t.queue, uid)
	}
	if p.failed = err != nil; p.failed {
		return outcome{}
	}
	p.readAt = now
	t.own(uid, p.seen, &seen)
	var out outcome
	if wake := p.take(seen); wake > 0 {
		out.wake = t.wakeIn(p, now, wake)
	}
	if empty(seen) {
		out.remove = p.published
		p.published, p.seen = false, nil
		if !p.dirty && p.wake.IsZero() {
			delete(t.pods, uid)
		}
	} else {
		out.changes = p.diff(seen)
		out.publish = len(out.changes) > 0
		p.published, p.seen = true, &seen
	}
	if !p.dirty {
		delete(t.relist, uid)
	}
	return out
}

// seen is a pod's last observation; nil if the runtime has nothing of it.
func (t *tracker) seen(uid string) *topic.PodObservation {
	if p := t.pods[uid]; p != nil {
		return p.seen
	}
	return nil
}

func (p *pod) diff(seen topic.PodObservation) []string {
	if p.seen == nil {
		return Diff(topic.PodObservation{}, seen)
	}
	return Diff(*p.seen, seen)
}

// take takes note of a reading, and decides whether and when the pod is read again by itself.
func (p *pod) take(seen topic.PodObservation) time.Duration {
	maps.DeleteFunc(p.unseen, func(object string, kind runtimeapi.ContainerEventType) bool {
		return shows(seen, object, kind)
	})
	if len(p.unseen) > 0 && p.unseenReads < len(unseenRetries) {
		p.unseenReads++
		return unseenRetries[p.unseenReads-1]
	}
	clear(p.unseen)
	p.unseenReads = 0
	if seen.Complete() {
		p.partialReads = 0
		return 0
	}
	pause := min(partialRetry<<min(p.partialReads, 10), partialRetryMax)
	p.partialReads++
	return pause
}

// own brings the owners of objects up to date.
func (t *tracker) own(uid string, old, seen *topic.PodObservation) {
	if old != nil {
		for _, id := range objects(*old) {
			delete(t.owner, id)
		}
	}
	for _, id := range objects(*seen) {
		t.owner[id] = uid
	}
}

func objects(seen topic.PodObservation) []string {
	ids := make([]string, 0, len(seen.Sandboxes)+len(seen.Containers))
	for _, sandbox := range seen.Sandboxes {
		ids = append(ids, sandbox.ID)
	}
	for _, container := range seen.Containers {
		ids = append(ids, container.ID)
	}
	return ids
}

// relisted compares what is known with the lists and marks every pod that differs. The relist is complete
// once these have been read.
func (t *tracker) relisted(now time.Time, listed []observe.Listed) {
	t.relist = map[string]bool{}
	present := make(map[string]bool, len(listed))
	for _, l := range listed {
		present[l.UID] = true
		p := t.pod(l.UID)
		old := p.seen == nil || p.failed || now.Sub(p.readAt) >= rereadAfter
		if old || !l.Agrees(*p.seen) {
			t.relist[l.UID] = true
		}
	}
	for uid := range t.pods {
		if !present[uid] {
			t.relist[uid] = true
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(t.relist)) {
		t.mark(uid)
	}
}

// endRelist ends the last relist if every pod that it asked for has been read. It reports whether it did.
func (t *tracker) endRelist() bool {
	if t.relist == nil || len(t.relist) > 0 {
		return false
	}
	t.relist = nil
	return true
}
