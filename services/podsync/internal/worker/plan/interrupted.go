package plan

import (
	"maps"
	"strings"

	"kubelot.dev/bus/topic"
)

// Interrupted reports whether the container's start was broken off because its caller hung up, as happens when podsync
// and the supervisor that keeps its connection are killed: containerd then takes back what it has begun and leaves an
// ended container. It never ran, so it is no run that failed: neither the back-off nor the restart count may know of
// it.
func Interrupted(c *topic.Container) bool {
	return c.State == topic.ContainerExited && c.StartedAt.IsZero() &&
		c.Reason == "StartError" && strings.HasSuffix(c.Message, "context canceled")
}

// WithoutInterrupted leaves the interrupted containers out.
func WithoutInterrupted(obs topic.PodObservation) topic.PodObservation {
	kept := make([]topic.Container, 0, len(obs.Containers))
	for i := range obs.Containers {
		if !Interrupted(&obs.Containers[i]) {
			kept = append(kept, obs.Containers[i])
		}
	}
	obs.Containers = kept
	return obs
}

// clearInterrupted removes the interrupted containers. Their names are in use until then, so those containers are
// as if being started.
func (p *planner) clearInterrupted() {
	known := maps.Clone(p.facts.Containers)
	if known == nil {
		known = map[string]ContainerFacts{}
	}
	for i := range p.obs.Containers {
		if c := &p.obs.Containers[i]; Interrupted(c) {
			p.do(Action{Kind: RemoveContainer, Container: c.Name, ID: c.ID})
			busy := known[c.Name]
			busy.Busy = true
			known[c.Name] = busy
		}
	}
	p.facts.Containers = known
	p.obs = WithoutInterrupted(p.obs)
}
