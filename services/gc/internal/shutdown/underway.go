package shutdown

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

// askTimeout is how long podsync may take to answer.
const askTimeout = 10 * time.Second

// underway is a shutdown while pods end. Its fields belong to the loop.
type underway struct {
	// end ends what was begun for it.
	end context.CancelFunc
	ctx context.Context //nolint:containedctx // of what is begun for it

	pods map[string]topic.Pod
	// known is true once the bus has told of all pods.
	known bool
	// asked is when podsync was last asked to end a pod, by its UID.
	asked map[string]time.Time
	// podsync is when podsync's process started; zero while unknown.
	podsync  time.Time
	flushing bool
}

// follow begins to follow the pods.
func (s *Service) follow(ctx context.Context) {
	u := &underway{pods: map[string]topic.Pod{}, asked: map[string]time.Time{}}
	u.ctx, u.end = context.WithCancel(ctx)
	s.under = u
	err := errors.Join(
		loop.Follow(u.ctx, s.loop, topic.PodUpdate, func(c bus.Change[topic.Pod]) { //nolint:contextcheck // it ends with ctx
			loop.Into(u.pods)(c)
			u.known = u.known || c.Synced
			if c.Deleted {
				delete(u.asked, c.Key)
			}
		}),
		loop.Follow(u.ctx, s.loop, topic.Health, func(c bus.Change[topic.DaemonHealth]) { //nolint:contextcheck // the same
			if c.Key == "podsync" && !c.Deleted && !c.Synced {
				u.restarted(c.Value.Started)
			}
		}),
	)
	if err != nil {
		s.env.Log.Error("the pods can't be followed: the groups end by their time only", "error", err)
	}
}

// restarted takes note of podsync's process. A new one may have forgotten the ends that were not begun.
func (u *underway) restarted(at time.Time) {
	if !u.podsync.IsZero() && !u.podsync.Equal(at) {
		clear(u.asked)
	}
	u.podsync = at
}

// list are the pods as advance wants them, in the order of their UIDs.
func (u *underway) list() []Pod {
	var list []Pod
	for _, uid := range slices.Sorted(maps.Keys(u.pods)) {
		p := u.pods[uid]
		if p.Pod == nil {
			continue
		}
		pod := Pod{
			Ref: topic.RefOf(p.Pod), Grace: p.Pod.Spec.TerminationGracePeriodSeconds, Asked: u.asked[uid],
			Begun: p.Lifecycle != topic.Syncing, Over: p.Lifecycle == topic.Terminated && p.Released,
		}
		pod.UID = uid
		if p.Pod.Spec.Priority != nil {
			pod.Priority = *p.Pod.Spec.Priority
		}
		list = append(list, pod)
	}
	return list
}

// ask asks podsync to end a pod, beside the loop.
func (u *underway) ask(ctx context.Context, s *Service, e End, now time.Time) {
	u.asked[e.UID] = now
	s.loop.Go(func() {
		limited, cancel := context.WithTimeout(u.ctx, askTimeout)
		defer cancel()
		_, err := topic.PodEvict.Do(limited, s.env.Bus, topic.Eviction{ //nolint:contextcheck // it ends with ctx
			Ref: e.Ref, Reason: topic.ReasonShutdown, Message: podMessage, Disruption: corev1.PodReasonTerminationByKubelet,
			GracePeriodSeconds: &e.Grace,
		})
		if err == nil || u.ctx.Err() != nil || errors.Is(err, bus.ErrNotFound) {
			return // a pod that podsync doesn't know is gone, or will be in pod.update
		}
		s.env.Log.Warn("podsync could not be asked to end a pod; it is asked again", "pod", e.Name,
			"namespace", e.Namespace, "uid", e.UID, "error", err)
		s.loop.Do(ctx, func() {
			// Not at once: the bus or podsync may be away.
			if u.asked[e.UID].Equal(now) {
				u.asked[e.UID] = time.Now().Add(-againAfter + retryAsk)
			}
		})
	})
}

// retryAsk is when podsync is asked again after a failure.
const retryAsk = 200 * time.Millisecond
