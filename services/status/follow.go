package status

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

// follow has the loop handle the messages of every topic that is read.
func (s *Service) follow(ctx context.Context) error {
	w := s.state
	return errors.Join(
		follow(ctx, s, topic.PodUpdate, w.setPod, w.dropPod),
		follow(ctx, s, topic.PodObject, w.setObject, w.dropObject),
		follow(ctx, s, topic.StatusPatch, func(uid string, v topic.PodStatus) {
			w.setPatch(uid, v, time.Now())
		}, w.dropPatch),
		follow(ctx, s, topic.ProbeResult, w.setProbe, w.dropProbe),
		follow(ctx, s, topic.PodMirror, w.setMirror, w.dropMirror),
		follow(ctx, s, topic.PodSources,
			func(_ string, v topic.Sources) { w.setSources(v) }, func(string) { w.setSources(topic.Sources{}) }),
		follow(ctx, s, topic.NodeObject, func(_ string, v corev1.Node) { w.setNode(v) }, func(string) {}),
		s.recall(ctx),
	)
}

// follow hands the changes of a topic to the loop until ctx ends.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], set func(key string, v T),
	drop func(key string),
) error {
	s.unread[t.Name()] = true
	return loop.Follow(ctx, s.loop, t, func(c bus.Change[T]) {
		switch {
		case c.Synced:
			s.synced(t.Name())
		case c.Deleted:
			drop(c.Key)
		default:
			set(c.Key, c.Value)
		}
	})
}

// synced takes note that all that the bus had retained of a topic is known. The work begins with the last one.
func (s *Service) synced(name string) {
	own := topic.MergedStatus.Name()
	delete(s.unread, name)
	s.state.live = len(s.unread) == 0
	if len(s.unread) != 1 || !s.unread[own] {
		s.impatient = nil
	} else if s.impatient == nil {
		s.impatient = time.After(recallPatience)
	}
}

// recall reads what this daemon itself has said before it was started, and then no more. A bus of an earlier release,
// which has no such topic, has retained nothing.
func (s *Service) recall(ctx context.Context) error {
	s.unread[topic.MergedStatus.Name()] = true
	reading, enough := context.WithCancel(ctx)
	changes, err := topic.MergedStatus.Watch(reading, s.env.Bus)
	if err != nil {
		enough()
		return err
	}
	s.loop.Go(func() {
		defer enough()
		for c := range changes {
			switch {
			case c.Synced:
				enough()
			case !c.Deleted && reading.Err() == nil:
				s.loop.Do(ctx, func() { setSaid(s.state, c.Key, c.Value) })
			}
		}
		s.loop.Do(ctx, func() { s.synced(topic.MergedStatus.Name()) })
	})
	return nil
}
