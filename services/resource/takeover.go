package resource

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/deviceplugin"
)

// reasonReleased is that of the Events about what containers don't have for themselves any more.
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

// releaseByID notes CPUs of containers that a file of version 1 knows by their IDs only. The kubelet asks the runtime
// whose they are; here their pods are given CPUs anew.
func (r *recalled) releaseByID(log *slog.Logger, path string, byID map[string]cpuset.CPUSet) {
	if len(byID) == 0 {
		return
	}
	r.nameless = fmt.Sprintf("The state file %s is of version 1, which doesn't say of which pods containers are: %d of "+
		"them don't have the CPUs %s for themselves any more, until their pods are given CPUs anew", path, len(byID),
		cpuset.New().Union(slices.Collect(maps.Values(byID))...))
	log.Warn("containers do not keep what they had for themselves", "reason", r.nameless)
}

// tellNode tells the node's users what pods have lost that aren't known.
func (r *recalled) tellNode(to daemon.EventRecorder, node string) {
	if r.nameless != "" {
		to.Record(topic.Event{
			Kind: "Node", Ref: topic.Ref{Name: node, UID: node}, Type: corev1.EventTypeWarning, Reason: reasonReleased,
			Message: r.nameless,
		})
	}
}

// leave looks for devices that the Node has of an earlier agent, where neither a checkpoint nor the bus tells of a run
// before: the scheduler would send pods for them. They become 0 once. What somebody advertises on the Node later stays.
func (b *publisher) leave(node *corev1.Node) {
	left := func(name corev1.ResourceName) bool {
		q := node.Status.Capacity[name]
		return !q.IsZero()
	}
	b.leftover = slices.DeleteFunc(b.leftover, func(name corev1.ResourceName) bool { return !left(name) })
	defer func() { b.holdings.devices.Left(b.leftover) }()
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
