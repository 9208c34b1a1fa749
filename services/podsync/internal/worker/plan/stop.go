package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// stopper plans the end of a pod.
type stopper struct{ *planner }

// stop plans a pod that should end: the main, ephemeral and running init containers at once, then the sidecars one
// after the other in reverse order, then the sandboxes. The sidecars' preStop hooks don't wait for their turn, and
// nobody's turn comes later than the end of the grace period (KEP-753). Sidecars don't wait for ephemeral containers.
func (p stopper) stop() {
	p.setCPUs()
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

func (p stopper) stopContainers() (running bool) {
	running = p.clearCreated()
	waits, names := running, p.sidecars()
	var sidecars []topic.Container
	for _, c := range p.obs.Containers {
		switch _, sidecar := names[c.Name]; {
		case !alive(c):
		case sidecar:
			sidecars = append(sidecars, c)
		default:
			running = true
			waits = waits || !p.isEphemeral(c.Name)
			p.doStop(c, p.remaining())
		}
	}
	if len(sidecars) == 0 {
		return running
	}
	if p.remaining() == 0 {
		for _, c := range sidecars {
			p.doStop(c, 0)
		}
		return true
	}
	p.wakeAt(p.StopSince.Add(p.Grace))
	for _, c := range sidecars {
		if p.hookDue(c) {
			p.do(Action{Kind: RunPreStop, Container: c.Name, ID: c.ID, Grace: p.remaining(), Message: p.StopMessage})
		}
	}
	if !waits {
		p.stopLast(sidecars)
	}
	return true
}

// stopLast stops the sidecar that is the last in the spec, when its hook is over.
func (p stopper) stopLast(sidecars []topic.Container) {
	for i := len(p.Pod.Spec.InitContainers) - 1; i >= 0; i-- {
		found := false
		for _, c := range sidecars {
			if c.Name != p.Pod.Spec.InitContainers[i].Name {
				continue
			}
			found = true
			if !p.hookDue(c) {
				p.doStop(c, p.remaining())
			}
		}
		if found {
			return
		}
	}
}

// hookDue reports whether the container has a preStop hook that hasn't run yet.
func (p stopper) hookDue(c topic.Container) bool {
	spec := Container(p.Pod, c.Name)
	return spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && !p.known(c.Name).Runs[c.ID].HookRan
}

// clearCreated removes created containers while a call of an earlier process may be starting them. The runtime refuses
// that for one that is being started, which shows as running soon: the pod hasn't stopped before.
func (p stopper) clearCreated() (some bool) {
	for _, c := range p.obs.Containers {
		if p.facts.Settling && c.State == topic.ContainerCreated {
			some = true
			p.do(Action{Kind: RemoveContainer, Container: c.Name, ID: c.ID})
		}
	}
	return some
}

func (p stopper) sidecars() map[string]*corev1.Container {
	sidecars := map[string]*corev1.Container{}
	for i := range p.Pod.Spec.InitContainers {
		if c := &p.Pod.Spec.InitContainers[i]; podspec.IsSidecar(c) {
			sidecars[c.Name] = c
		}
	}
	return sidecars
}

func (p stopper) doStop(c topic.Container, grace time.Duration) {
	p.do(Action{
		Kind: StopContainer, Container: c.Name, ID: c.ID, Grace: grace, Message: p.StopMessage,
		HookRan: p.known(c.Name).Runs[c.ID].HookRan,
	})
}

// remaining is what is left of the grace period. Where nothing is, a container has no hook run any more, and the least
// time to end that any gets.
func (p stopper) remaining() time.Duration {
	return max(p.Grace-p.now.Sub(p.StopSince), 0)
}

// Runs reports whether a container of the pod runs, or may run for all that is known.
func Runs(obs topic.PodObservation) bool { return slices.ContainsFunc(obs.Containers, alive) }

func alive(c topic.Container) bool {
	return c.State == topic.ContainerRunning || c.State == topic.ContainerUnknown
}
