package probe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// targets are the probes of the pod's running containers.
func (p *pod) targets(nodeIP string) []target {
	if p.update == nil || p.seen == nil || p.update.Lifecycle == topic.Terminated {
		return nil
	}
	all := targets(p.update.Pod, *p.seen, nodeIP)
	return slices.DeleteFunc(all, func(t target) bool { return slices.Contains(p.update.PostStart, t.container) })
}

// terminates reports whether the pod is to end.
func (p *pod) terminates() bool {
	return p.update != nil && (p.update.Lifecycle != topic.Syncing || p.update.Pod.DeletionTimestamp != nil)
}

// verdict is the one on this very container.
func (p *pod) verdict(t target) (topic.Probe, bool) {
	v, ok := p.verdicts[t.slot]
	return v, ok && v.ContainerID == t.id
}

// runs reports whether the target must be probed now.
func (p *pod) runs(t target) bool {
	verdict, decided := p.verdict(t)
	switch {
	case !t.reachable():
		return false
	case t.kind == topic.ProbeStartup:
		return !decided && !p.terminates()
	case !p.started(t):
		return false
	case t.kind == topic.ProbeLiveness:
		return !p.terminates() && (!decided || verdict.Success)
	default:
		return true
	}
}

// started reports whether the target's container has passed its startup probe, if it has one.
func (p *pod) started(t target) bool {
	if t.containerSpec.StartupProbe == nil {
		return true
	}
	t.kind = topic.ProbeStartup
	verdict, decided := p.verdict(t)
	return decided && verdict.Success
}

// outdated reports whether a verdict's container, or its pod, is replaced or gone. A verdict stays while that isn't
// known.
func (p *pod) outdated(s slot, verdict topic.Probe) bool {
	switch {
	case p.removed || p.update != nil && p.update.Lifecycle == topic.Terminated:
		return true
	case p.seen == nil:
		return p.update == nil
	}
	for i := range p.seen.Containers {
		if c := &p.seen.Containers[i]; c.Name == s.container {
			return c.ID != verdict.ContainerID
		}
	}
	return len(p.seen.Errors) == 0
}

// setTransit notes since when the pod starts or stops.
func (p *pod) setTransit(now time.Time) {
	switch {
	case !p.terminates() && !p.starts():
		p.transit = time.Time{}
	case p.transit.IsZero():
		p.transit = now
	}
}

// starts reports whether a main container has never been there. A container that crashes and is started again doesn't
// count.
func (p *pod) starts() bool {
	if p.update == nil {
		return false
	}
	return p.seen == nil || slices.ContainsFunc(p.update.Pod.Spec.Containers, func(c corev1.Container) bool {
		return newest(*p.seen, c.Name) == nil
	})
}

// classOf is the rank of a run that has just become due. Nobody waits for one on a pod that ends.
func (p *pod) classOf(probe *probe) class {
	if p.terminates() {
		return ending
	}
	if _, decided := p.verdict(probe.target); !decided && probe.kind != topic.ProbeLiveness {
		return urgent
	}
	return routine
}
