package why

import (
	"context"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
)

// The bus marks no end of its history. It counts as complete after a pause, and as empty if nothing comes for longer:
// on a busy machine the first message takes its time.
const (
	quiet    = 200 * time.Millisecond
	patience = 2 * time.Second
)

// Read takes off the bus what Explain and ExplainNode need.
func Read(ctx context.Context, conn *bus.Conn) (Snapshot, error) {
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
	w.Steps, w.Events, w.Decisions = history(ctx, conn)
	return w, ctx.Err()
}

// one is the value of a topic that has only one.
func one[T any](ctx context.Context, conn *bus.Conn, t bus.State[T]) (T, error) {
	values, err := t.Read(ctx, conn)
	return values[""], err
}

// history reads what the bus keeps of steps, Events and decisions.
func history(ctx context.Context, conn *bus.Conn) (steps []topic.Step, events []topic.Event,
	decisions []topic.Decision,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := bus.From{Since: time.Unix(0, 0)}
	stepsFrom, eventsFrom := topic.PodStep.Subscribe(ctx, conn, all), topic.KubeEvent.Subscribe(ctx, conn, all)
	decisionsFrom := topic.GCDecision.Subscribe(ctx, conn, all)
	for wait := patience; ; wait = quiet {
		select {
		case s, ok := <-stepsFrom:
			if !ok {
				return steps, events, decisions
			}
			steps = append(steps, s.Value)
		case e, ok := <-eventsFrom:
			if !ok {
				return steps, events, decisions
			}
			events = append(events, e.Value)
		case d, ok := <-decisionsFrom:
			if !ok {
				return steps, events, decisions
			}
			decisions = append(decisions, d.Value)
		case <-time.After(wait):
			return steps, events, decisions
		}
	}
}
