package podsync

import (
	"context"
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/podstatus"
	"kubelot.dev/services/podsync/internal/worker"
)

// leastGrace is what an evicted pod has at least; gc's hard thresholds ask for it, and a request for nothing gets it.
const leastGrace = time.Second

// serveEvictions answers pod.evict until the dispatcher ends. Without it nothing keeps a node from running out of memory,
// so that not being able to serve ends the daemon.
func (d *dispatcher) serveEvictions(fail context.CancelCauseFunc) {
	d.wg.Go(func() {
		if err := topic.PodEvict.Serve(d.ctx, d.bus, d.askEvict); err != nil && d.ctx.Err() == nil {
			fail(fmt.Errorf("serve %s: %w", topic.PodEvict.Name(), err))
		}
	})
}

// askEvict has the dispatcher's goroutine decide.
func (d *dispatcher) askEvict(ctx context.Context, req topic.Eviction) (reply topic.EvictionReply, err error) {
	done := make(chan struct{})
	decide := func() {
		defer close(done)
		reply, err = d.evict(req)
	}
	select {
	case d.inbox <- decide:
		<-done // the loop runs what it took
		return reply, err
	case <-ctx.Done():
		return reply, context.Cause(ctx)
	}
}

func (d *dispatcher) evict(req topic.Eviction) (topic.EvictionReply, error) {
	e := d.workers[req.UID]
	switch {
	case req.Reason == "":
		return topic.EvictionReply{}, fmt.Errorf("pod %s/%s (UID %s) can't be evicted without a reason", req.Namespace, req.Name, req.UID)
	case req.GracePeriodSeconds != nil && *req.GracePeriodSeconds < 0:
		return topic.EvictionReply{}, fmt.Errorf("pod %s/%s (UID %s) can't be evicted with a grace period of %d s", req.Namespace, req.Name, req.UID, *req.GracePeriodSeconds)
	case e == nil:
		return topic.EvictionReply{}, fmt.Errorf("pod %s/%s (UID %s) has no worker on this node: it is gone or was never admitted", req.Namespace, req.Name, req.UID)
	case e.pod.Name != req.Name || e.pod.Namespace != req.Namespace:
		return topic.EvictionReply{}, fmt.Errorf("the pod with the UID %s is %s/%s, not %s/%s", req.UID, e.pod.Namespace, e.pod.Name, req.Namespace, req.Name)
	}
	if e.Over() || podstatus.Terminal(e.pod.Status.Phase) {
		return topic.EvictionReply{Ending: true, Ended: true}, nil
	}
	ending := e.removed || e.pod.DeletionTimestamp != nil || e.Ending() || podstatus.Terminal(e.pod.Status.Phase)
	d.log.Warn("pod is evicted", "pod", req.Name, "namespace", req.Namespace, "uid", req.UID, "reason", req.Reason, "message", req.Message)
	eviction := worker.Eviction{Reason: req.Reason, Message: req.Message, Disruption: req.Disruption}
	if s := req.GracePeriodSeconds; s != nil {
		eviction.Grace = max(time.Duration(*s)*time.Second, leastGrace)
	}
	e.Evict(eviction)
	return topic.EvictionReply{Ending: ending}, nil
}
