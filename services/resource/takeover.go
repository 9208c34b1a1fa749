package resource

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// reasonReleased is that of the Event about what a pod's containers don't have for themselves any more.
const reasonReleased = "ExclusiveResourcesReleased"

// takeOver takes what an earlier run has left.
func (s *Service) takeOver(before predecessor, found recalled) {
	s.before, s.found = before.pods, found
}

// tellReleased tells the pod's users what it has lost, once the pod's name is known.
func (s *Service) tellReleased(pod *corev1.Pod) {
	lost := s.found.released[string(pod.UID)]
	delete(s.found.released, string(pod.UID))
	if len(lost) == 0 || s.env.Events == nil {
		return
	}
	s.env.Events.Record(topic.Event{
		Kind: "Pod", Ref: topic.RefOf(pod), Type: corev1.EventTypeWarning, Reason: reasonReleased,
		Message: strings.Join(lost, ". "), At: s.now(),
	})
}

// nodeObject looks for devices that the Node has of an earlier agent, where no checkpoint says which devices there were:
// the scheduler would send pods for them. They become 0 once. What somebody advertises on the Node later stays.
func (s *Service) nodeObject(c bus.Change[corev1.Node]) {
	if c.Synced || c.Deleted || c.Value.UID == "" {
		return
	}
	left := func(name corev1.ResourceName) bool {
		q := c.Value.Status.Capacity[name]
		return !q.IsZero()
	}
	b := &s.publisher
	if s.found.untold {
		s.found.untold = false
		for name := range c.Value.Status.Capacity {
			if extended(name) && left(name) {
				b.leftover = append(b.leftover, name)
			}
		}
		slices.Sort(b.leftover)
		if len(b.leftover) > 0 {
			s.env.Log.Info("the Node has devices of an earlier agent, none of which is known here", "resources", b.leftover)
		}
	} else {
		b.leftover = slices.DeleteFunc(b.leftover, func(name corev1.ResourceName) bool { return !left(name) })
	}
	s.changed = true
}

// extended reports whether the resource isn't one of Kubernetes' own.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") &&
		!strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
