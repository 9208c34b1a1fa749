package why

import (
	"context"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
)

// quiet is the pause after which the history counts as complete. The bus marks no end of it.
const quiet = 200 * time.Millisecond

// Read takes off the bus what Explain needs.
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
	runtime, err := topic.NodeRuntime.Read(ctx, conn)
	if err != nil {
		return w, err
	}
	w.Runtime = runtime[""]
	w.Steps, w.Events = history(ctx, conn)
	return w, ctx.Err()
}

// history reads what the bus keeps of steps and Events.
func history(ctx context.Context, conn *bus.Conn) (steps []topic.Step, events []topic.Event) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := bus.From{Since: time.Unix(0, 0)}
	stepsFrom, eventsFrom := topic.PodStep.Subscribe(ctx, conn, all), topic.KubeEvent.Subscribe(ctx, conn, all)
	for {
		select {
		case s, ok := <-stepsFrom:
			if !ok {
				return steps, events
			}
			steps = append(steps, s.Value)
		case e, ok := <-eventsFrom:
			if !ok {
				return steps, events
			}
			events = append(events, e.Value)
		case <-time.After(quiet):
			return steps, events
		}
	}
}
