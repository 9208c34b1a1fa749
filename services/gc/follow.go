package gc

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/gc/internal/evict"
)

// subscribe makes the loop handle the messages of all topics that gc reads.
func (s *Service) subscribe(ctx context.Context) error {
	known := &s.state
	return errors.Join(
		follow(ctx, s, topic.PodUpdate, func(c bus.Change[topic.Pod]) {
			loop.Into(known.pods)(c)
			if (c.Deleted || c.Value.Released) && c.At.After(known.went) {
				known.went = c.At
			}
			if c.Deleted {
				delete(s.evicted, c.Key)
				known.left[c.Key] = time.Now()
			}
		}),
		follow(ctx, s, topic.PLEGEvent, loop.Into(known.seen)),
		follow(ctx, s, topic.PodSources, func(c bus.Change[topic.Sources]) {
			if !c.Synced && c.Value.Ready != known.sources.Ready {
				known.settled = time.Time{} // from now on other things may be deleted
			}
			switch {
			case c.Deleted:
				known.sources = topic.Sources{}
			case !c.Synced:
				known.sources = c.Value
			}
		}),
		follow(ctx, s, topic.NodePressure, s.restore),
	)
}

// follow has the loop handle the changes of a topic until ctx ends, and knows which topics have been read.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], handle func(bus.Change[T])) error {
	s.state.unread[t.Name()] = true
	return loop.Follow(ctx, s.loop, t, func(c bus.Change[T]) {
		handle(c)
		if c.Synced {
			if s.state.unread[t.Name()] && len(s.state.unread) == 1 { // the last one
				resume(s, time.Now())
			}
			delete(s.state.unread, t.Name())
			// The bus was away, and may have lost what it had: everything counts as just learned.
			s.state.settled = time.Time{}
		}
		s.state.update(time.Now())
	})
}

// restore takes over the conditions that an earlier process has stated. Later messages are this process's own and
// change nothing.
func (s *Service) restore(c bus.Change[topic.Pressure]) {
	if s.restored || c.Deleted {
		return
	}
	s.restored = true
	if c.Synced {
		return // there was none
	}
	p := c.Value
	s.tracker.Restore(evict.Pressure{
		Under: map[corev1.NodeConditionType]bool{
			corev1.NodeMemoryPressure: p.Memory, corev1.NodeDiskPressure: p.Disk,
			corev1.NodePIDPressure: p.PID,
		},
		Relieved: p.Relieved,
	}, time.Now())
	s.pressure, s.held = p, [jobs]bool{jobMemory: p.Memory, jobDisk: p.Disk, jobPID: p.PID}
}
