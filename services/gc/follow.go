package gc

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
)

// subscribe has the messages of every topic that is read handled in the loop.
func (s *Service) subscribe(ctx context.Context) error {
	w := &s.world
	return errors.Join(
		follow(ctx, s, topic.PodUpdate,
			func(uid string, p topic.Pod) { w.pods[uid] = p },
			func(uid string) {
				delete(w.pods, uid)
				delete(s.evicted, uid)
				s.schedule.soon(jobSweep, time.Now())
			}),
		follow(ctx, s, topic.PLEGEvent,
			func(uid string, o topic.PodObservation) { w.seen[uid] = o },
			func(uid string) { delete(w.seen, uid) }),
		follow(ctx, s, topic.PodSources, func(_ string, v topic.Sources) { w.sources = v }, func(string) { w.sources = topic.Sources{} }),
		follow(ctx, s, topic.NodePressure, func(_ string, p topic.Pressure) { s.restore(p) }, func(string) {}),
	)
}

// follow hands the changes of a topic to the loop until ctx ends.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], set func(key string, v T), drop func(key string)) error {
	changes, err := t.Watch(ctx, s.env.Bus)
	if err != nil {
		return err
	}
	s.world.unread[t.Name()] = true
	s.wg.Go(func() {
		for c := range changes {
			send(ctx, s.inbox, func() {
				switch {
				case c.Synced:
					delete(s.world.unread, t.Name())
					s.restored = s.restored || t.Name() == topic.NodePressure.Name()
					// The bus was away, and may have lost what it had: everything counts as just learned.
					s.world.settled = time.Time{}
				case c.Deleted:
					drop(c.Key)
				default:
					set(c.Key, c.Value)
				}
				s.world.update(time.Now())
			})
		}
	})
	return nil
}

// restore takes over the conditions that an earlier process has stated. Those of this process come back to it too, and change nothing.
func (s *Service) restore(p topic.Pressure) {
	if s.restored {
		return
	}
	s.restored = true
	s.tracker.Restore(evict.Pressure{
		Under:    map[corev1.NodeConditionType]bool{corev1.NodeMemoryPressure: p.Memory, corev1.NodeDiskPressure: p.Disk, corev1.NodePIDPressure: p.PID},
		Relieved: p.Relieved,
	}, time.Now())
	s.pressure = p
}
