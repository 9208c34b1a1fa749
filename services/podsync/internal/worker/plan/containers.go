package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// ensureImages plans the image of every container whose next start may come, all side by side.
func (p *planner) ensureImages() {
	visit := func(c *corev1.Container) {
		if p.known(c.Name).Image || p.known(c.Name).Busy || !p.mayStart(c) {
			return
		}
		if failure, failed := p.facts.Failures[c.Name]; failed && p.now.Before(failure.RetryAt) {
			return
		}
		p.do(Action{Kind: EnsureImage, Container: c.Name})
	}
	for i := range p.Pod.Spec.InitContainers {
		visit(&p.Pod.Spec.InitContainers[i])
	}
	for i := range p.Pod.Spec.Containers {
		visit(&p.Pod.Spec.Containers[i])
	}
	for i := range p.Pod.Spec.EphemeralContainers {
		c := corev1.Container(p.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		visit(&c)
	}
}

// mayStart reports whether the container's next start could be now, as far as its own state says.
func (s *situation) mayStart(c *corev1.Container) bool {
	if s.isInit(c.Name) && !podspec.IsSidecar(c) && s.past(c.Name) {
		return false
	}
	last := s.current(c.Name)
	if last == nil {
		// What ended for good in an older sandbox is done; only init containers run again in each.
		before := s.latest(c.Name)
		return before == nil || s.isInit(c.Name) || s.restarts(c, before)
	}
	if last.State != topic.ContainerExited || s.isEphemeral(c.Name) {
		return false
	}
	if !s.restarts(c, last) {
		return false
	}
	return !s.now.Before(s.backoffEnd(c, last))
}

// ephemeral starts the ephemeral containers that have never run; they are never restarted (KEP-277).
func (p *planner) ephemeral() {
	for i := range p.Pod.Spec.EphemeralContainers {
		c := corev1.Container(p.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		last := p.latest(c.Name)
		switch {
		case p.known(c.Name).Busy:
			p.wait(c.Name, p.creating(), "")
		case last == nil && p.awaitsTarget(&p.Pod.Spec.EphemeralContainers[i]):
			p.wait(c.Name, p.creating(), "its target container doesn't run")
		case last == nil || last.State == topic.ContainerCreated:
			p.start(&c, last)
		}
	}
}

// awaitsTarget reports whether the container is to share the PID namespace of one that doesn't run.
func (s *situation) awaitsTarget(e *corev1.EphemeralContainer) bool {
	target, shared := s.current(e.TargetContainerName), s.Pod.Spec.ShareProcessNamespace
	return e.TargetContainerName != "" && !s.Pod.Spec.HostPID && (shared == nil || !*shared) &&
		(target == nil || target.State != topic.ContainerRunning)
}

// driveInits drives the init containers in order, and reports whether the main containers may start.
func (p *planner) driveInits() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		past := p.past(c.Name)
		if podspec.IsSidecar(c) {
			up := p.keep(c)
			if !past && !up {
				p.waitRest(i + 1)
				return false
			}
			continue
		}
		if past {
			continue
		}
		cur := p.current(c.Name)
		if cur != nil && cur.State == topic.ContainerExited && cur.ExitCode == 0 {
			continue
		}
		if cur == nil || cur.State != topic.ContainerRunning {
			p.keep(c)
		}
		p.waitRest(i + 1)
		return false
	}
	return true
}

// past reports whether a later container was created in the usable sandbox: the init container has then done its work,
// or was up once if it is a sidecar, even if the runtime has forgotten it.
func (s *situation) past(name string) bool {
	later := false
	for c := range podspec.InitAndMain(&s.Pod.Spec) {
		if later && s.current(c.Name) != nil {
			return true
		}
		later = later || c.Name == name
	}
	return false
}

// waitRest marks the init containers from index on and all main containers as waiting for initialization.
func (p *planner) waitRest(index int) {
	for i := index; i < len(p.Pod.Spec.InitContainers); i++ {
		p.wait(p.Pod.Spec.InitContainers[i].Name, ReasonPodInitializing, "")
	}
	for i := range p.Pod.Spec.Containers {
		p.wait(p.Pod.Spec.Containers[i].Name, ReasonPodInitializing, "")
	}
}

// mainContainers starts the main containers in the order of the spec: one begins when those before
// it have been started (their postStart hooks included) or are waiting after a failure.
func (p *planner) mainContainers() {
	blocked := false
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		cur := p.current(c.Name)
		begun := cur != nil && cur.State != topic.ContainerCreated
		if blocked && !begun {
			if p.isDue(c) {
				p.wait(c.Name, p.creating(), "")
			}
			continue
		}
		p.keep(c)
		if p.known(c.Name).Busy || (!begun && p.isComing(c.Name) && p.isDue(c)) {
			blocked = true
		}
	}
}

// isComing reports whether a container that isn't there yet is on its way and not in a back-off.
func (p *planner) isComing(name string) bool {
	_, failed := p.facts.Failures[name]
	return !failed && p.plan.Waiting[name].Reason != ReasonCrashLoopBackOff
}

// keep makes one container run as its spec and restart policy say, and reports whether it is
// running and started (its startup probe, if any, has succeeded).
func (p *planner) keep(c *corev1.Container) bool {
	cur := p.current(c.Name)
	if p.known(c.Name).Busy {
		p.wait(c.Name, p.creating(), "")
		return false
	}
	if cur == nil {
		p.startInNewSandbox(c)
		return false
	}
	switch cur.State {
	case topic.ContainerCreated:
		p.start(c, cur)
	case topic.ContainerRunning:
		return p.checkRunning(c, cur)
	case topic.ContainerExited:
		if p.restarts(c, cur) {
			p.restart(c, cur)
		}
	case topic.ContainerUnknown:
		p.do(Action{
			Kind: StopContainer, Container: c.Name, ID: cur.ID, Grace: PodGrace(p.Pod),
			Message: "Container is in an unknown state, it will be stopped and restarted.",
		})
	}
	return false
}

// startInNewSandbox plans the first run of a container in the usable sandbox. Its runs in older ones count for the
// back-off, but for one that the runtime lost when the machine went down.
func (p *planner) startInNewSandbox(c *corev1.Container) {
	last := p.latest(c.Name)
	again := last != nil && p.restarts(c, last)
	switch {
	case again && last.State == topic.ContainerExited && last.Reason != "Unknown": // containerd on an end it missed
		p.restart(c, last)
	case again || last == nil || p.isInit(c.Name):
		p.start(c, nil)
	}
}

// checkRunning checks a running container against its spec and its probes, and reports whether it has started.
func (p *planner) checkRunning(c *corev1.Container, cur *topic.Container) bool {
	if p.changed(c, cur) {
		p.replace(c, cur, PodGrace(p.Pod), "definition changed", true)
		return false
	}
	if p.probeFailed(topic.ProbeLiveness, cur) {
		p.replace(c, cur, probeGrace(c.LivenessProbe, PodGrace(p.Pod)), "failed liveness probe", p.restartsUnhealthy(c))
		return false
	}
	if c.StartupProbe == nil {
		return true
	}
	if p.probeFailed(topic.ProbeStartup, cur) {
		p.replace(c, cur, probeGrace(c.StartupProbe, PodGrace(p.Pod)), "failed startup probe", p.restartsUnhealthy(c))
		return false
	}
	result, ok := p.known(c.Name).Probes[topic.ProbeStartup]
	return ok && result.ContainerID == cur.ID && result.Success
}

// changed reports whether the container was created from another spec than it has now.
func (s *situation) changed(c *corev1.Container, was *topic.Container) bool {
	return s.facts.Hash != nil && was.Hash != "" && was.Hash != s.facts.Hash(c)
}

// replace stops a container; again reports whether it is then started again whatever its exit code.
func (p *planner) replace(c *corev1.Container, cur *topic.Container, grace time.Duration, why string, again bool) {
	a := Action{
		Kind: StopContainer, Container: c.Name, ID: cur.ID, Grace: grace,
		Message: fmt.Sprintf("Container %s %s", c.Name, why),
	}
	if again {
		a.Reason = ToReplace
		a.Message += ", will be restarted"
	}
	if p.isInit(c.Name) {
		a.Message = fmt.Sprintf("Init container %s %s", c.Name, why)
	}
	p.do(a)
}

// restartsUnhealthy reports whether a container that failed a probe is started again. Restart rules don't count, as
// they are about exit codes.
func (s *situation) restartsUnhealthy(c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return s.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// probeFailed reports whether a probe of the kind has failed for good, and not because the container had just ended.
func (s *situation) probeFailed(kind string, c *topic.Container) bool {
	result, ok := s.known(c.Name).Probes[kind]
	return ok && result.ContainerID == c.ID && !result.Success &&
		(c.State != topic.ContainerExited || !c.FinishedAt.Before(result.Since))
}

// probeGrace is the probe's own termination grace period (KEP-2238), else the pod's.
func probeGrace(probe *corev1.Probe, pod time.Duration) time.Duration {
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
	}
	return pod
}

// start plans a container's start, now or when what it needs is there. created is a container that
// was created and not started.
func (p *planner) start(c *corev1.Container, created *topic.Container) {
	p.wait(c.Name, p.creating(), "")
	if failure, failed := p.facts.Failures[c.Name]; failed {
		p.wait(c.Name, failure.Reason, failure.Message)
		if p.now.Before(failure.RetryAt) {
			p.wakeAt(failure.RetryAt)
			return
		}
	}
	if p.resizing {
		return
	}
	if created != nil {
		p.do(Action{
			Kind: StartContainer, Container: c.Name, ID: created.ID, SandboxID: created.SandboxID,
			Attempt: created.Attempt,
		})
		return
	}
	if p.facts.Allocating {
		p.wait(c.Name, p.creating(), p.facts.AllocatingWhy)
		return
	}
	if !p.known(c.Name).Image || !p.facts.VolumesMounted {
		return
	}
	attempt := uint32(0)
	if last := p.latest(c.Name); last != nil {
		attempt = max(last.Attempt, uint32(max(last.RestartCount, 0))) + 1
	}
	p.do(Action{Kind: StartContainer, Container: c.Name, SandboxID: p.sandbox.ID, Attempt: attempt})
}
