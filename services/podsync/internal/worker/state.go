package worker

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// state is what a worker knows of its pod.
type state struct {
	Config
	view       view
	volumes    topic.PodVolumes
	allocation topic.Allocation
	containers containers
	stopped    map[string]bool // sandboxes, by ID, that were stopped
	ending     ending
	resize     *topic.Resize // an in-place resize that isn't done; nil for none. Never changed, only replaced
	start      time.Time     // the pod's
}

func newState(cfg Config, obs topic.PodObservation) *state {
	s := &state{
		Config: cfg, view: newView(obs), containers: containers{}, stopped: map[string]bool{},
		ending: newEnding(), start: time.Now(),
	}
	if t := cfg.Previous.StartTime; t != nil {
		s.start = t.Time
	}
	if cfg.Restored != nil {
		for name, count := range cfg.Restored.BackoffBase {
			s.containers.of(name).beginBackoff(count)
		}
		s.resize = cfg.Restored.Resize
	} else {
		s.resize = begunBefore(cfg.Pod, &cfg.Previous)
	}
	s.containers.seedBackoff(obs)
	s.restore()
	return s
}

// restore continues a termination that an earlier run of the daemon had begun. The deadline stays the same, unless the
// clock was set back meanwhile.
func (s *state) restore() {
	r := s.Restored
	s.ending.removed = r != nil && r.Removed
	if r == nil || r.Deadline == nil || r.GracePeriodSeconds == nil || r.Lifecycle == topic.Syncing {
		return
	}
	grace := time.Duration(*r.GracePeriodSeconds) * time.Second
	since := r.Deadline.Add(-grace)
	if now := time.Now(); since.After(now) {
		since = now
	}
	end := &stop{
		since: since, grace: grace, killing: stopping, reason: s.Previous.Reason, message: s.Previous.Message,
		rank: s.nextRank(),
	}
	s.ending.stop = end
	// If the status has a reason, the node ended the pod. Its phase becomes Failed only when nothing runs any more.
	end.fail = s.Previous.Phase == corev1.PodFailed || s.Previous.Reason != ""
	for _, c := range s.Previous.Conditions {
		if end.fail && c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			end.disruption, end.disruptionMessage = c.Reason, c.Message
			s.ending.hurry()
		}
	}
}

// endedBefore reports whether the pod had ended, with all its containers, before the worker was made. Others may have
// declared it ended while it runs.
func (s *state) endedBefore() bool {
	return !s.view.alive() &&
		(podstatus.Terminal(s.Previous.Phase) || s.Restored != nil && s.Restored.Lifecycle == topic.Terminated)
}

// desired is what the pod should be.
func (s *state) desired() plan.Desired {
	d := plan.Desired{Pod: s.Pod}
	if end := s.ending.stop; end != nil {
		d.Stop, d.StopSince, d.Grace, d.StopMessage = true, end.since, end.grace, end.killing
	}
	return d
}

// plan is what to do now.
func (s *state) plan(failures map[string]plan.Failure, now time.Time) plan.Plan {
	return plan.Make(s.desired(), s.view.obs, s.facts(failures), now)
}

// facts are what the plan needs to know besides the specification and the reading.
func (s *state) facts(failures map[string]plan.Failure) plan.Facts {
	return plan.Facts{
		VolumesMounted: s.volumes.Phase == topic.VolumeMounted || len(s.Pod.Spec.Volumes) == 0,
		Allocating:     s.allocating(), AllocatingWhy: s.allocatingWhy(),
		Containers: s.containerFacts(), Failures: failures, SandboxesStopped: s.stopped,
		MaxBackoff: s.Node.MaxBackoff(), Hash: labels.ContainerHash,
		Resize: s.resize, ResizeWaits: !s.Room.due(time.Now()).IsZero(), Settling: s.Settling != nil && s.Settling(),
	}
}

// forget drops what is kept about containers and sandboxes that no longer exist.
func (s *state) forget() {
	s.containers.forget(s.view.obs)
	sandboxes := map[string]bool{}
	for i := range s.view.obs.Sandboxes {
		sandboxes[s.view.obs.Sandboxes[i].ID] = true
	}
	for id := range s.stopped {
		if !sandboxes[id] {
			delete(s.stopped, id)
		}
	}
}

// deadline is when activeDeadlineSeconds ends the pod; zero if it has none, or is ending already.
func (s *state) deadline() time.Time {
	if seconds := s.Pod.Spec.ActiveDeadlineSeconds; seconds != nil && s.ending.stop == nil {
		return s.start.Add(time.Duration(*seconds) * time.Second)
	}
	return time.Time{}
}

// operation is the purpose of a round that begins now, in the words of the kubelet's metric.
func (s *state) operation() string {
	switch {
	case s.ending.lifecycle == topic.Terminated:
		return "terminated"
	case s.ending.stop != nil:
		return "kill"
	case len(s.view.obs.Sandboxes) == 0:
		return "create"
	case s.resize != nil:
		return "update"
	}
	return "sync"
}
