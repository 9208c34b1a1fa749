package status

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	// maxWaiting is how many Events wait to be recorded. The kubelet holds as many for a sink that is slow.
	maxWaiting = 1000
	// dropsEvery is the least time between two log lines that say how many Events were dropped.
	dropsEvery = time.Minute
)

// backlog holds the Events that wait to be recorded, oldest first. A node may make more of them than eventRecordQPS
// allows to send. Beyond maxWaiting the oldest Normal one is dropped, or the oldest of all where there are only
// Warnings.
type backlog struct {
	mu      sync.Mutex
	waiting []bus.Occurrence[topic.Event]
	closed  bool
	wake    chan struct{} // has a value when something was added, or in was closed

	// These are collect's alone.
	dropped int       // since the last report
	logged  time.Time // when the last report was made
}

// collect takes in what comes until in is closed. It calls report with how many Events were dropped since the last
// report: at the first drop, then at most each dropsEvery, and at the end.
func (b *backlog) collect(in <-chan bus.Occurrence[topic.Event], report func(dropped int)) {
	// due fires when the drops that came too soon after a report may be reported.
	var due <-chan time.Time
	say := func() {
		report(b.dropped)
		b.dropped, b.logged, due = 0, time.Now(), nil
	}
	for {
		select {
		case o, ok := <-in:
			if !ok {
				if b.dropped > 0 {
					say()
				}
				b.mu.Lock()
				b.closed = true
				b.mu.Unlock()
				b.signal()
				return
			}
			b.add(o)
			switch quiet := time.Since(b.logged); {
			case b.dropped == 0 || due != nil:
			case quiet >= dropsEvery:
				say()
			default:
				due = time.After(dropsEvery - quiet)
			}
		case <-due:
			say()
		}
	}
}

func (b *backlog) add(o bus.Occurrence[topic.Event]) {
	b.mu.Lock()
	defer b.signal()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, o)
	if len(b.waiting) <= maxWaiting {
		return
	}
	i := max(0, slices.IndexFunc(b.waiting, func(o bus.Occurrence[topic.Event]) bool {
		return o.Value.Type == corev1.EventTypeNormal
	}))
	b.waiting[i].Ack()
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.dropped++
}

func (b *backlog) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// next waits for the oldest Event and takes it out. It reports false once ctx has ended or nothing more comes.
func (b *backlog) next(ctx context.Context) (bus.Occurrence[topic.Event], bool) {
	for ctx.Err() == nil {
		b.mu.Lock()
		if len(b.waiting) > 0 {
			o := b.waiting[0]
			if b.waiting = slices.Delete(b.waiting, 0, 1); len(b.waiting) == 0 {
				b.waiting = nil // a burst leaves no array behind
			}
			b.mu.Unlock()
			return o, true
		}
		closed := b.closed
		b.mu.Unlock()
		if closed {
			break
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
		}
	}
	return bus.Occurrence[topic.Event]{}, false
}
