package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

const (
	backoffFirst = 10 * time.Second
	// backoffMax caps the crash back-off unless the configuration says otherwise.
	backoffMax = 300 * time.Second
	// backoffReset is how long a container must have run for its back-off to begin anew.
	backoffReset = 10 * time.Minute
)

// Backoff is how long a container waits after its failure number restarts (0 for its first run's):
// not at all after the first, then 10 s doubling up to limit.
func Backoff(restarts int, limit time.Duration) time.Duration {
	if limit <= 0 {
		limit = backoffMax
	}
	if restarts <= 0 {
		return 0
	}
	d := min(backoffFirst, limit)
	for i := 1; i < restarts && d < limit; i++ {
		d = min(2*d, limit)
	}
	return d
}

// restarts tells whether an exited container is to be started again: its own restart policy and
// rules (KEP-5307) come first, then the pod's.
func (p *planner) restarts(c *corev1.Container, last *topic.Container) bool {
	if p.isEphemeral(c.Name) {
		return false
	}
	if last.State != topic.ContainerExited {
		return true
	}
	if p.isInit(c.Name) && !IsSidecar(c) {
		if last.ExitCode == 0 {
			return false
		}
		return Policy(p.Pod, c, last.ExitCode, true) != corev1.RestartPolicyNever
	}
	if IsSidecar(c) {
		return true
	}
	switch Policy(p.Pod, c, last.ExitCode, false) {
	case corev1.RestartPolicyNever:
		// A container that was stopped since its spec changed hasn't ended by itself: it's started as it is to be now.
		return p.facts.Replaced[last.ID] && p.changed(c, last)
	case corev1.RestartPolicyOnFailure:
		return last.ExitCode != 0 || p.facts.Replaced[last.ID]
	default:
		return true
	}
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

// backoffEnd is when an exited container may be started again. One that was stopped in order to be started again, as after a
// failed probe, is started at once if the back-off has passed since the end of the run before, and that back-off is a step
// lower: the kubelet stops and starts it in one go, and counts from what had ended by then. A clock that was set back behind the
// end of the run doesn't lengthen the wait, it ends it.
func (p *planner) backoffEnd(c *corev1.Container, last *topic.Container) time.Time {
	if p.now.Before(last.FinishedAt) {
		return p.now
	}
	restarts := last.RestartCount - p.facts.BackoffBase[c.Name]
	if p.anew(c, last) {
		restarts = 0
	}
	if !p.facts.Replaced[last.ID] {
		return last.FinishedAt.Add(Backoff(restarts, p.facts.MaxBackoff))
	}
	delay := Backoff(restarts-1, p.facts.MaxBackoff)
	if last.FinishedAt.Sub(p.endedBefore(last)) >= delay {
		return last.FinishedAt
	}
	return last.FinishedAt.Add(delay)
}

// endedBefore is when the run before ended; if that isn't known, when this one was created, which was soon after.
func (p *planner) endedBefore(last *topic.Container) time.Time {
	for i := range p.obs.Containers {
		c := &p.obs.Containers[i]
		if c.Name == last.Name && c.State == topic.ContainerExited && c.FinishedAt.Before(last.CreatedAt) {
			return c.FinishedAt
		}
	}
	return last.CreatedAt
}

// anew tells whether the back-off begins anew after this run: it was long enough, or the next isn't of the same image,
// by which the kubelet keeps its back-off.
func (p *planner) anew(c *corev1.Container, last *topic.Container) bool {
	return ranLong(last) || p.changed(c, last)
}

func ranLong(c *topic.Container) bool {
	return !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffReset
}

// restart plans the next run of an exited container, after its back-off.
func (p *planner) restart(c *corev1.Container, last *topic.Container) {
	if p.anew(c, last) {
		p.plan.NewBackoffBase[c.Name] = last.RestartCount
	}
	end := p.backoffEnd(c, last)
	if p.now.Before(end) {
		delay := end.Sub(last.FinishedAt)
		p.wait(c.Name, ReasonCrashLoopBackOff, fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, c.Name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID))
		p.wakeAt(end)
		return
	}
	p.start(c, nil)
}

// complete tells whether the pod has ended by itself: every main container has ended and none is
// started again, or an init container has failed for good, or a pod that is never restarted lost its sandbox.
func (p *planner) complete() bool {
	if p.initFailed() {
		return true
	}
	if len(p.Pod.Spec.Containers) == 0 {
		return false
	}
	if p.sandbox == nil && p.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && p.allDead() && !p.anyRules() {
		return true
	}
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		last := p.latest(c.Name)
		if last == nil || last.State != topic.ContainerExited || p.facts.Busy[c.Name] || p.restarts(c, last) {
			return false
		}
	}
	return true
}

func (p *planner) initFailed() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		last := p.latest(c.Name)
		if !IsSidecar(c) && last != nil && last.State == topic.ContainerExited && last.ExitCode != 0 && !p.restarts(c, last) && !p.facts.Busy[c.Name] {
			return true
		}
	}
	return false
}

// allDead tells whether the pod has had containers and all of them have ended.
func (p *planner) allDead() bool {
	for _, c := range p.obs.Containers {
		if c.State != topic.ContainerExited {
			return false
		}
	}
	return len(p.obs.Containers) > 0
}

func (p *planner) anyRules() bool {
	return slices.ContainsFunc(p.Pod.Spec.Containers, func(c corev1.Container) bool { return len(c.RestartPolicyRules) > 0 || c.RestartPolicy != nil })
}
