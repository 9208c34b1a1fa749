package gc

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/gc/internal/image"
)

// Reasons of Events, the kubelet's.
const (
	reasonThresholdMet     = "EvictionThresholdMet"
	reasonFreeDiskSpace    = "FreeDiskSpaceFailed"
	reasonImageGCFailed    = "ImageGCFailed"
	reasonContainerGC      = "ContainerGCFailed"
	reasonInvalidCapacity  = "InvalidDiskCapacity"
	invalidCapacityMessage = "invalid capacity 0 on image filesystem"
)

// reporter reports to the bus, the API server and the log. Its methods may be called from several goroutines.
type reporter struct {
	env       daemon.Env
	problems  *daemon.Problems
	decisions *bus.Publisher[topic.Decision]
	pressure  *bus.Writer[topic.Pressure]
}

func newReporter(env daemon.Env) *reporter {
	return &reporter{
		env: env, problems: daemon.NewProblems(env.Health, ""),
		decisions: topic.GCDecision.Publisher(env.Bus), pressure: topic.NodePressure.Writer(env.Bus),
	}
}

// decided publishes a decision.
func (r *reporter) decided(d topic.Decision) {
	d.At = time.Now()
	args := []any{"action", d.Action, "object", d.Object, "reason", d.Reason}
	if d.Pod != nil {
		args = append(args, "pod", d.Pod.Name, "namespace", d.Pod.Namespace, "uid", d.Pod.UID)
	}
	switch {
	case d.Error != "":
		r.env.Log.Warn("action failed", append(args, "error", d.Error)...)
	case d.Action == topic.ActionEvict:
		r.env.Log.Info("decided", args...)
	default:
		r.env.Log.Debug("decided", args...)
	}
	if err := r.decisions.Publish("", d); err != nil {
		r.env.Log.Error("can't publish a decision", "error", err)
	}
}

// conditions publishes the node's conditions.
func (r *reporter) conditions(p topic.Pressure) {
	if err := r.pressure.Set("", p); err != nil {
		r.env.Log.Error("can't publish the node's conditions, no daemon acts on them", "error", err)
	}
}

// node records an Event on the node.
func (r *reporter) node(kind, reason, message string) {
	n := r.env.Config.NodeName
	r.env.Events.Record(topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: n, UID: n}, Type: kind,
		Reason: reason, Message: message,
	})
}

// full reports that there is nothing left to remove, and why each image stays.
func (r *reporter) full(in image.Input, picked []image.Choice, freed int64) error {
	for _, c := range picked {
		r.decided(c.Decision)
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		in.FS.Used(), image.Size(in.FS.Capacity), max(freed, 0))
	r.node(corev1.EventTypeWarning, reasonFreeDiskSpace, message)
	return fmt.Errorf("%s%w", message, errFull)
}
