package pleg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
)

// relistOverdue is the age of the last complete relist at which the kubelet calls its PLEG unhealthy.
const relistOverdue = 3 * time.Minute

// relistIn reads the lists after a pause, or earlier where that is planned already.
func (s *Service) relistIn(pause time.Duration) {
	due := time.Now().Add(pause)
	if !s.relist.due.IsZero() && !s.relist.due.After(due) {
		return
	}
	s.relist.due = due
	if !s.relist.running {
		s.relist.timer.Reset(pause)
	}
}

// interval is the pause between relists.
func (s *Service) interval() time.Duration {
	if s.streamOpen && !s.relist.failed && !sharesEvents(s.now) {
		return relistOpen
	}
	return relistClosed
}

// sharesEvents reports whether the runtime gives each event to one of its streams only. That is so with containerd 1.7:
// the first event after a restart of pleg goes to the stream that has ended, and is lost (containerd issue 7318).
func sharesEvents(r topic.Runtime) bool {
	return r.Name == "containerd" && strings.HasPrefix(strings.TrimPrefix(r.Version, "v"), "1.")
}

func (s *Service) startRelist(ctx context.Context) {
	now := time.Now()
	s.metrics.relistBegins(now, s.relist.begin)
	s.relist.running, s.relist.due, s.relist.begin = true, time.Time{}, now
	s.loop.Go(func() {
		listCtx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		pods, err := observe.List(listCtx, s.runtime)
		s.loop.Do(ctx, func() { s.onLists(pods, err) })
	})
}

func (s *Service) onLists(pods []observe.Listed, err error) {
	if failed := err != nil; failed != s.relist.failed {
		s.relist.failed = failed
		signal(s.probeNow)
		if failed {
			s.env.Log.Warn("can't list the runtime's pods, keeping what was last seen", "error", err)
		} else {
			s.env.Log.Info("the runtime lists its pods again")
		}
	}
	now := time.Now()
	if err == nil {
		s.tracker.relisted(now, pods)
		s.finishRelist(now)
	}
	// What was planned meanwhile (due) may be earlier than the interval.
	s.relist.running = false
	due := s.relist.due
	s.relist.due = time.Time{}
	pause := s.interval()
	if !due.IsZero() {
		pause = min(pause, max(0, due.Sub(now)))
	}
	s.relistIn(pause)
}

// finishRelist takes note when every pod that the last relist asked for has been read.
func (s *Service) finishRelist(now time.Time) {
	if !s.tracker.endRelist() {
		return
	}
	s.lastRelist = now
	s.metrics.relistEnds(now, s.relist.begin)
	if s.firstRelist.IsZero() {
		s.firstRelist = now
		s.env.Log.Info("read every pod of the runtime", "pods", len(s.tracker.pods))
		s.publishNode()
	}
}

// onNode takes the runtime's health. A reading like the last one isn't sent again.
func (s *Service) onNode(now topic.Runtime) {
	if s.known && s.now.Reachable != now.Reachable {
		s.relistIn(0)
	}
	first := !s.known
	s.now, s.known = now, true
	if first && !s.relist.running {
		s.relistIn(s.interval()) // now it is known whether events are enough
	}
	s.publishNode()
}

// publishNode publishes node.runtime and what follows from it for the daemon's own health.
func (s *Service) publishNode() {
	if !s.known {
		return // the runtime hasn't been asked yet
	}
	s.now.EventStream, s.now.FirstRelist = s.streamOpen, s.firstRelist.UTC()
	if err := s.node.Set("", s.now); err != nil {
		s.env.Log.Error("can't publish the runtime's health", "error", err)
	}
	s.env.Health.Set(s.health(time.Now()))
}

// health is how pleg does: it depends on the runtime alone.
func (s *Service) health(now time.Time) (topic.HealthState, string) {
	last := s.lastRelist
	if last.IsZero() {
		last = s.began
	}
	switch age := now.Sub(last); {
	case !s.now.Reachable:
		return topic.Unhealthy, s.now.Message
	case age >= relistOverdue:
		return topic.Unhealthy,
			fmt.Sprintf("pleg was last seen active %s ago; threshold is %s: pods of the runtime can't be read",
				age.Truncate(time.Second), relistOverdue)
	case s.lastRelist.IsZero():
		return topic.Degraded, "not all pods of the runtime have been read yet"
	}
	if stuck := s.stuck(); stuck > 0 {
		return topic.Degraded, fmt.Sprintf("containers of %d pods can't be inspected; see the errors in their pleg.event",
			stuck)
	}
	return topic.Healthy, s.now.Message
}

func (s *Service) stuck() int {
	n := 0
	for _, p := range s.tracker.pods {
		if p.seen != nil && !p.seen.Complete() {
			n++
		}
	}
	return n
}
