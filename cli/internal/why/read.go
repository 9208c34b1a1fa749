package why

import (
	"context"
	"fmt"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
)

// patience is how long the bus may take to tell everything, on a node that may have no processor to spare.
const patience = time.Minute

func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %s for the bus: kubelot doctor", patience))
}

// Read takes off the bus what Explain and ExplainNode need.
func Read(ctx context.Context, conn *bus.Conn) (Snapshot, error) {
	ctx, cancel := soon(ctx)
	defer cancel()
	var w Snapshot
	var err error
	if w.State, err = pods.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Probes, err = topic.ProbeResult.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Volumes, err = topic.VolumeState.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Allocations, err = topic.PodAllocation.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Healths, err = topic.Health.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Runtime, err = one(ctx, conn, topic.NodeRuntime); err != nil {
		return w, err
	}
	if w.Node, err = one(ctx, conn, topic.NodeObject); err != nil {
		return w, err
	}
	if w.Pressure, err = one(ctx, conn, topic.NodePressure); err != nil {
		return w, err
	}
	if w.Shutdown, err = one(ctx, conn, topic.NodeShutdown); err != nil {
		return w, err
	}
	if w.Steps, err = topic.PodStep.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Events, err = topic.KubeEvent.Read(ctx, conn); err != nil {
		return w, err
	}
	w.Decisions, err = topic.GCDecision.Read(ctx, conn)
	return w, err
}

// one is the value of a topic that has only one.
func one[T any](ctx context.Context, conn *bus.Conn, t bus.State[T]) (T, error) {
	values, err := t.Read(ctx, conn)
	return values[""], err
}
