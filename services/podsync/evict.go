package podsync

import (
	"context"
	"fmt"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/podsync/internal/worker"
)

// leastGrace is the least grace period of an evicted pod. gc asks for it at hard thresholds; a request for a shorter
// one gets it, too.
const leastGrace = time.Second

// serveEvictions answers pod.evict until the dispatcher ends. Without evictions the node may run out of memory, so the
// daemon ends if it can't serve them.
func (d *dispatcher) serveEvictions(fail context.CancelCauseFunc) {
	type answer struct {
		reply topic.EvictionReply
		err   error
	}
	serve := func(ctx context.Context, req topic.Eviction) (topic.EvictionReply, error) {
		a, gone := loop.Ask(ctx, d.tasks.Loop, func() (a answer) {
			a.reply, a.err = d.evict(req)
			return a
		})
		if gone != nil {
			return topic.EvictionReply{}, bus.WithKind(bus.ErrUnavailable, gone)
		}
		return a.reply, a.err
	}
	d.tasks.Go(func() {
		if err := topic.PodEvict.Serve(d.tasks.ctx, d.recovery.bus, serve); err != nil && d.tasks.ctx.Err() == nil {
			fail(fmt.Errorf("serve %s: %w", topic.PodEvict.Name(), err))
		}
	})
}

// evict ends a pod by force, unless it is ending already.
func (d *dispatcher) evict(req topic.Eviction) (topic.EvictionReply, error) {
	e, id := d.workers[req.UID], fmt.Sprintf("pod %s/%s (UID %s)", req.Namespace, req.Name, req.UID)
	switch {
	case req.Reason == "":
		return notEvicted(bus.ErrInvalid, "%s can't be evicted without a reason", id)
	case req.GracePeriodSeconds != nil && *req.GracePeriodSeconds < 0:
		return notEvicted(bus.ErrInvalid, "%s can't be evicted with a grace period of %d s", id, *req.GracePeriodSeconds)
	case e == nil:
		return notEvicted(bus.ErrNotFound, "%s has no worker on this node: it is gone or was never admitted", id)
	case e.pod.Name != req.Name || e.pod.Namespace != req.Namespace:
		return notEvicted(bus.ErrNotFound, "the pod with the UID %s is %s/%s, not %s/%s", req.UID, e.pod.Namespace,
			e.pod.Name, req.Namespace, req.Name)
	}
	if e.Over() {
		return topic.EvictionReply{Ending: true, Ended: true}, nil
	}
	ending := e.ending()
	d.log.Warn("pod is evicted", "pod", req.Name, "namespace", req.Namespace, "uid", req.UID, "reason", req.Reason,
		"message", req.Message)
	eviction := worker.Eviction{Reason: req.Reason, Message: req.Message, Disruption: req.Disruption}
	if s := req.GracePeriodSeconds; s != nil {
		eviction.Grace = max(time.Duration(*s)*time.Second, leastGrace)
	}
	e.Evict(eviction)
	if !ending && req.Reason == topic.ReasonExhausted {
		d.metrics.Rejected(req.Reason) // the kubelet counts it so, though the pod was admitted
	}
	e.evicted, e.shutDown = true, req.Reason == topic.ReasonShutdown
	return topic.EvictionReply{Ending: ending}, nil
}

func notEvicted(kind error, format string, args ...any) (topic.EvictionReply, error) {
	return topic.EvictionReply{}, bus.WithKind(kind, fmt.Errorf(format, args...))
}
