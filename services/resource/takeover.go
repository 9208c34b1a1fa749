package resource

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/deviceplugin"
)

// reasonReleased is that of the Event about what a pod's containers don't have for themselves any more.
const reasonReleased = "ExclusiveResourcesReleased"

// tell tells the pod's users what it has lost, once the pod's name is known.
func (r *recalled) tell(to daemon.EventRecorder, pod *corev1.Pod, now time.Time) {
	lost := r.released[string(pod.UID)]
	delete(r.released, string(pod.UID))
	if len(lost) == 0 || to == nil {
		return
	}
	to.Record(topic.Event{
		Kind: "Pod", Ref: topic.RefOf(pod), Type: corev1.EventTypeWarning, Reason: reasonReleased,
		Message: strings.Join(lost, ". "), At: now,
	})
}

// leave looks for devices that the Node has of an earlier agent, where neither a checkpoint nor the bus tells of a run
// before: the scheduler would send pods for them. They become 0 once, as those of a plugin that hasn't come back. What
// somebody advertises on the Node later stays.
func (b *publisher) leave(node *corev1.Node) {
	left := func(name corev1.ResourceName) bool {
		q := node.Status.Capacity[name]
		return !q.IsZero()
	}
	b.leftover = slices.DeleteFunc(b.leftover, func(name corev1.ResourceName) bool { return !left(name) })
	defer func() { b.holdings.devices.Left(b.leftover, left) }()
	if !b.holdings.untold {
		return
	}
	b.holdings.untold = false
	for name := range node.Status.Capacity {
		if deviceplugin.Extended(string(name)) && left(name) {
			b.leftover = append(b.leftover, name)
		}
	}
	slices.Sort(b.leftover)
	if len(b.leftover) > 0 {
		b.log.Info("the Node has devices of an earlier agent, none of which is known here", "resources", b.leftover)
	}
}
