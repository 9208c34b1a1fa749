package status

import (
	"context"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

// serveUnwritten answers status.unwritten until ctx ends.
func (s *Service) serveUnwritten(ctx context.Context) {
	serve := func(ctx context.Context, req topic.UnwrittenRequest) (topic.UnwrittenReply, error) {
		reply, err := loop.Ask(ctx, s.loop, func() topic.UnwrittenReply { return s.unwritten(req.UIDs, time.Now()) })
		if err != nil {
			return reply, bus.WithKind(bus.ErrUnavailable, err)
		}
		return reply, nil
	}
	s.loop.Go(func() {
		if err := topic.StatusUnwritten.Serve(ctx, s.env.Bus, serve); err != nil && ctx.Err() == nil {
			s.env.Log.Error("status.unwritten can't be served: a shutdown of the node won't wait for the pods' statuses",
				"error", err)
		}
	})
}

// unwritten says which of the pods have not ended, or have a last status that the API server lacks. Without an API
// server nothing is ever written, so nothing is waited for.
func (s *Service) unwritten(uids []string, now time.Time) topic.UnwrittenReply {
	reply := topic.UnwrittenReply{Outage: s.outage}
	for _, uid := range uids {
		if !s.state.live || !s.state.pods[uid].ended() || s.api != nil && !s.state.written(uid, now) {
			reply.UIDs = append(reply.UIDs, uid)
		}
	}
	return reply
}

// ended reports whether podsync has stated the pod's last status.
func (p *pod) ended() bool {
	return p != nil && p.patch != nil && p.patch.Finished
}

// written reports whether the API server has the pod's status as it is, or has no such pod.
func (s *state) written(uid string, now time.Time) bool {
	p := s.pods[uid]
	if p.update == nil {
		return false // it is about to come
	}
	switch {
	case !p.update.Static() && (!p.watched || p.gone || p.deleted):
		return true
	case p.update.Static() && s.mirrorOf(p.update.Pod) == nil && (!s.wanted(uid, p) || !owns(s.node)):
		return true // it has no mirror pod and gets none
	}
	a, err := s.decide(uid, now)
	return err == nil && a.upToDate
}
