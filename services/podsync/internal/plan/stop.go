package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// minGrace is what a sidecar gets to end even where the main containers used up the pod's grace period.
const minGrace = 2 * time.Second

// stop plans a pod that should end: the main, ephemeral and running init containers at once, then the
// sidecars one after the other in reverse order (KEP-753), then the sandboxes.
func (p *planner) stop() {
	running := p.stopContainers()
	if running {
		return
	}
	p.plan.Stopped, p.plan.Released = true, true
	for _, s := range p.obs.Sandboxes {
		if s.Ready || !p.facts.SandboxesStopped[s.ID] {
			p.plan.Released = false
			p.do(Action{Kind: StopSandbox, ID: s.ID})
		}
	}
}

func (p *planner) stopContainers() (running bool) {
	running = p.clearCreated()
	sidecars := p.sidecars()
	for _, c := range p.obs.Containers {
		if _, later := sidecars[c.Name]; !later && alive(c) {
			running = true
			p.doStop(c, p.remaining(0))
		}
	}
	if running {
		return true
	}
	for i := len(p.Pod.Spec.InitContainers) - 1; i >= 0; i-- {
		name := p.Pod.Spec.InitContainers[i].Name
		if _, ok := sidecars[name]; !ok {
			continue
		}
		for _, c := range p.obs.Containers {
			if c.Name == name && alive(c) {
				p.doStop(c, p.remaining(minGrace))
				return true
			}
		}
	}
	return false
}

// clearCreated removes created containers while a call of an earlier process may be starting them. The runtime refuses
// that for one that is being started, which shows as running soon: the pod hasn't stopped before.
func (p *planner) clearCreated() (some bool) {
	for _, c := range p.obs.Containers {
		if p.facts.Settling && c.State == topic.ContainerCreated {
			some = true
			p.do(Action{Kind: RemoveContainer, Container: c.Name, ID: c.ID})
		}
	}
	return some
}

func (p *planner) sidecars() map[string]*corev1.Container {
	sidecars := map[string]*corev1.Container{}
	for i := range p.Pod.Spec.InitContainers {
		if c := &p.Pod.Spec.InitContainers[i]; IsSidecar(c) {
			sidecars[c.Name] = c
		}
	}
	return sidecars
}

func (p *planner) doStop(c topic.Container, grace time.Duration) {
	p.do(Action{Kind: StopContainer, Container: c.Name, ID: c.ID, Grace: grace, Message: p.StopMessage})
}

// remaining is what is left of the grace period, at least floor.
func (p *planner) remaining(floor time.Duration) time.Duration {
	return max(p.Grace-p.now.Sub(p.StopSince), min(floor, p.Grace), 0)
}

func alive(c topic.Container) bool {
	return c.State == topic.ContainerRunning || c.State == topic.ContainerUnknown
}
