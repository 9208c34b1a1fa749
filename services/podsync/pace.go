package podsync

import (
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker/metrics"
)

const (
	// perPod is the rest, for each pod, after pod.sources was written, and after the pods were counted for the metrics.
	perPod = time.Millisecond
	// drainMost bounds what is handled before a sync, so that a sync comes even if events never cease.
	drainMost = 1000
)

// pace spaces out work that looks at every pod of the node: after the work, it rests for a time in proportion to the
// number of pods. So a thousand events don't cost a thousand times the work for all pods. An event that comes after the
// rest doesn't wait.
type pace struct{ until time.Time }

// rests reports whether what is asked for now is put off.
func (p *pace) rests(now time.Time) bool { return p.until.After(now) }

// sooner is the sooner of a time, which may be zero for never, and the rest's end, if anything waits for that.
func (p *pace) sooner(later time.Time, waits bool) time.Time {
	if waits && (later.IsZero() || p.until.Before(later)) {
		return p.until
	}
	return later
}

// pacing is what to do for all pods, and when.
type pacing struct {
	// stale is true where the workers may not fit what is wanted, until the next sync, and syncing is its pace.
	stale   bool
	syncing pace
	// round counts the syncs.
	round uint64
	// uncounted is true where the metrics' counts may be old, and counting is their pace.
	uncounted bool
	counting  pace
	// gone are the workers that have ended since the last sync, true for those of pods that were not wanted any more.
	gone map[string]bool
	// trigger is what may have made room for resizes.
	trigger string
}

// measureRestarts measures the pods that came again at once under the UID of one that had to go.
func (p *pacing) measureRestarts(w workers, m *metrics.Metrics) {
	for uid, removed := range p.gone {
		if e := w[uid]; e != nil && removed {
			m.Restarted(e.source != topic.SourceAPI)
		}
	}
	clear(p.gone)
	p.trigger = metrics.PodUpdated
}

// drain handles all messages that wait, so that one sync serves them all. Sets of the sources wait for the end of a
// rest. Between two sets there is always a sync: the first may have the last state of a pod that the second doesn't
// have any more.
func (d *dispatcher) drain(sets <-chan source.Set) {
	for range drainMost {
		select {
		case set := <-sets:
			d.take(set)
			sets = nil
		case handle := <-d.tasks.Changes():
			handle()
		default:
			return
		}
	}
}

// settle does what the events have made necessary, unless it has to rest. It returns when to call it again; zero for
// never.
func (d *dispatcher) settle(now time.Time) (later time.Time) {
	p := &d.pacing
	if p.stale && !p.syncing.rests(now) {
		p.stale = false
		d.sync()
		p.measureRestarts(d.workers, d.metrics)
		now = time.Now()
		p.syncing.until = now.Add(source.Rest(len(d.workers)))
	}
	d.wanted.reportSources(now)
	if p.uncounted && !p.counting.rests(now) {
		p.count(now, d.metrics, d.workers.counts(d.wanted.pods, d.cfg.Kubeconfig != ""))
	}
	later = p.syncing.sooner(later, p.syncing.rests(now)) // sets wait for that too
	later = d.wanted.stating.sooner(later, d.wanted.unreported)
	return p.counting.sooner(later, p.uncounted)
}

// count counts the pods for the metrics.
func (p *pacing) count(now time.Time, m *metrics.Metrics, counts metrics.PodCounts) {
	m.Count(counts)
	p.uncounted = false
	p.counting.until = now.Add(time.Duration(counts.Desired[true]+counts.Desired[false]) * perPod)
}
