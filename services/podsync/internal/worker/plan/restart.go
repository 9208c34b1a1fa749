package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

const (
	backoffFirst = 10 * time.Second
	// backoffReset is how long a container must have run for its back-off to start over.
	backoffReset = 10 * time.Minute
)

// backoff is how long a container waits before its next run. restarts is the number of runs before the one that failed:
// there is no wait after the first failure, then 10 s, doubling up to limit.
func backoff(restarts int, limit time.Duration) time.Duration {
	if restarts <= 0 {
		return 0
	}
	return pause.After(restarts, backoffFirst, limit)
}

// restarts reports whether an exited container must be started again. Its own restart rules and policy (KEP-5307) come
// first, then the pod's policy.
func (s *situation) restarts(c *corev1.Container, last *topic.Container) bool {
	if s.isEphemeral(c.Name) {
		return false
	}
	if last.State != topic.ContainerExited {
		return true
	}
	if s.isInit(c.Name) && !podspec.IsSidecar(c) {
		if last.ExitCode == 0 {
			return false
		}
		return Policy(s.Pod, c, last.ExitCode, true) != corev1.RestartPolicyNever
	}
	if podspec.IsSidecar(c) {
		return true
	}
	switch Policy(s.Pod, c, last.ExitCode, false) {
	case corev1.RestartPolicyNever:
		return s.goesOn(c, last)
	case corev1.RestartPolicyOnFailure:
		// The verdict is known after a restart of podsync, too.
		return last.ExitCode != 0 || s.known(last.Name).Runs[last.ID].Replaced ||
			s.probeFailed(topic.ProbeLiveness, last) || s.probeFailed(topic.ProbeStartup, last)
	default:
		return true
	}
}

// goesOn reports whether a container that is never started again was stopped for a change of its specification, and is
// to run with the new one.
func (s *situation) goesOn(c *corev1.Container, last *topic.Container) bool {
	run := s.known(last.Name).Runs[last.ID]
	return run.Resized || run.Replaced && s.changed(c, last)
}

// Policy is the restart policy that counts for a container that ended with exitCode.
func Policy(pod *corev1.Pod, c *corev1.Container, exitCode int32, init bool) corev1.RestartPolicy {
	for _, rule := range c.RestartPolicyRules {
		if rule.Action == corev1.ContainerRestartRuleActionRestart && matches(rule.ExitCodes, exitCode) {
			return corev1.RestartPolicyAlways
		}
	}
	if c.RestartPolicy != nil {
		return corev1.RestartPolicy(*c.RestartPolicy)
	}
	if init && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return corev1.RestartPolicyOnFailure
	}
	return pod.Spec.RestartPolicy
}

func matches(codes *corev1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if codes == nil {
		return false
	}
	listed := slices.Contains(codes.Values, exitCode)
	return listed == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

// backoffEnd is when an exited container may be started again.
//
// A container that was stopped in order to be started again, for example after a failed probe, has a back-off that is a
// step lower. It is started at once if that back-off has passed since the end of the run before. This is what the
// kubelet does: it stops and starts the container in one step, and counts the runs that had ended before.
//
// If the clock was set back to before the end of the run, the wait is over.
func (s *situation) backoffEnd(c *corev1.Container, last *topic.Container) time.Time {
	if s.now.Before(last.FinishedAt) {
		return s.now
	}
	restarts := last.RestartCount - s.known(c.Name).BackoffBase
	if s.startsOver(c, last) {
		restarts = 0
	}
	if !s.known(last.Name).Runs[last.ID].Replaced {
		return last.FinishedAt.Add(backoff(restarts, s.facts.MaxBackoff))
	}
	delay := backoff(restarts-1, s.facts.MaxBackoff)
	if last.FinishedAt.Sub(s.endedBefore(last)) >= delay {
		return last.FinishedAt
	}
	return last.FinishedAt.Add(delay)
}

// endedBefore is when the run before ended. If that isn't known it is when this run was created, which was soon after.
func (s *situation) endedBefore(last *topic.Container) time.Time {
	for i := range s.obs.Containers {
		c := &s.obs.Containers[i]
		if c.Name == last.Name && c.State == topic.ContainerExited && c.FinishedAt.Before(last.CreatedAt) {
			return c.FinishedAt
		}
	}
	return last.CreatedAt
}

// startsOver reports whether the back-off starts over after this run: the run was long enough, or the next one has
// another image. The kubelet keeps its back-off by image too.
func (s *situation) startsOver(c *corev1.Container, last *topic.Container) bool {
	return ranLong(last) || s.changed(c, last)
}

func ranLong(c *topic.Container) bool {
	return !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffReset
}

// restart plans the next run of an exited container, after its back-off.
func (p *planner) restart(c *corev1.Container, last *topic.Container) {
	if p.startsOver(c, last) {
		p.plan.NewBackoffBase[c.Name] = last.RestartCount
	}
	end := p.backoffEnd(c, last)
	if p.now.Before(end) {
		delay := end.Sub(last.FinishedAt)
		p.plan.Waiting[c.Name] = Waiting{
			Reason: ReasonCrashLoopBackOff, Until: end,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, c.Name, p.Pod.Name,
				p.Pod.Namespace, p.Pod.UID),
		}
		p.wakeAt(end)
		return
	}
	p.start(c, nil)
}

// complete reports whether the pod has ended by itself: every main container has ended and none is
// started again, or an init container has failed for good, or a pod that is never restarted lost its sandbox.
func (s *situation) complete() bool {
	if s.initFailed() {
		return true
	}
	if len(s.Pod.Spec.Containers) == 0 {
		return false
	}
	if s.sandbox == nil && s.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && s.allDead() && !s.anyRules() {
		return true
	}
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		last := s.latest(c.Name)
		if last == nil || last.State != topic.ContainerExited || s.known(c.Name).Busy || s.restarts(c, last) {
			return false
		}
	}
	return true
}

func (s *situation) initFailed() bool {
	for i := range s.Pod.Spec.InitContainers {
		c := &s.Pod.Spec.InitContainers[i]
		last := s.latest(c.Name)
		if !podspec.IsSidecar(c) && last != nil && last.State == topic.ContainerExited && last.ExitCode != 0 &&
			!s.restarts(c, last) && !s.known(c.Name).Busy {
			return true
		}
	}
	return false
}

// allDead reports whether the pod has had containers and all of them have ended.
func (s *situation) allDead() bool {
	for _, c := range s.obs.Containers {
		if c.State != topic.ContainerExited {
			return false
		}
	}
	return len(s.obs.Containers) > 0
}

func (s *situation) anyRules() bool {
	return slices.ContainsFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool {
		return len(c.RestartPolicyRules) > 0 || c.RestartPolicy != nil
	})
}
