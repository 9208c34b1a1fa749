package probe

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

// subscribe has the messages of every topic that is read handled in the loop.
func (s *Service) subscribe(ctx context.Context) error {
	t := s.tracker
	return errors.Join(
		follow(ctx, s, topic.PodUpdate, t.setPod, t.dropPod),
		follow(ctx, s, topic.PLEGEvent, t.setSeen, t.dropSeen),
		follow(ctx, s, topic.ProbeResult, func(_ time.Time, key string, v topic.Probe) { t.retained(key, v) },
			func(time.Time, string) {}),
		follow(ctx, s, topic.NodeObject, func(now time.Time, _ string, n corev1.Node) { t.setNode(now, n) },
			func(time.Time, string) {}),
	)
}

// follow hands the changes of a topic to the loop until ctx ends. The work begins once every topic's retained values
// are known.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], set func(now time.Time, key string, v T),
	drop func(now time.Time, key string),
) error {
	s.unread[t.Name()] = true
	return loop.Follow(ctx, s.loop, t, func(c bus.Change[T]) {
		now := time.Now()
		switch {
		case c.Synced:
			s.synced(now, t.Name())
		case c.Deleted:
			drop(now, c.Key)
		default:
			set(now, c.Key, c.Value)
		}
	})
}

func (s *Service) synced(now time.Time, name string) {
	delete(s.unread, name)
	if len(s.unread) == 0 && !s.tracker.synced {
		s.tracker.sync(now)
		s.env.Log.Info("read what the bus had retained", "pods", len(s.tracker.pods))
	}
}
