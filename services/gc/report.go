package gc

import (
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
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

// reporter tells the bus, the API server and the log. Its methods may be called from several goroutines.
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
	args := []any{"deed", d.Deed, "object", d.Object, "reason", d.Reason}
	if d.Pod != nil {
		args = append(args, "pod", d.Pod.Name, "namespace", d.Pod.Namespace, "uid", d.Pod.UID)
	}
	switch {
	case d.Error != "":
		r.env.Log.Warn("what was decided failed", append(args, "error", d.Error)...)
	case d.Deed == topic.DeedEvict:
		r.env.Log.Info("decided", args...)
	default:
		r.env.Log.Debug("decided", args...)
	}
	if err := r.decisions.Publish("", d); err != nil {
		r.env.Log.Error("decision can't be published", "error", err)
	}
}

// state publishes the node's conditions.
func (r *reporter) state(p topic.Pressure) {
	if err := r.pressure.Set("", p); err != nil {
		r.env.Log.Error("the node's conditions can't be published, so nobody acts on them", "error", err)
	}
}

// node records an Event on the node.
func (r *reporter) node(kind, reason, message string) {
	n := r.env.Config.NodeName
	r.env.Events.Record(topic.Event{Kind: "Node", Ref: topic.Ref{Name: n, UID: n}, Type: kind, Reason: reason, Message: message})
}
