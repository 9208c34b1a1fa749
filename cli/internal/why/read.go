package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
)

// quiet is after which pause the bus has handed over its history: it sends no mark at the end.
const quiet = 200 * time.Millisecond

// Read takes off the bus what Explain needs.
func Read(ctx context.Context, conn *bus.Conn) (World, error) {
	var w World
	var err error
	if w.World, err = pods.Read(ctx, conn); err != nil {
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

// Find is the pod that is called namespace/name, name or UID: the newest where one replaces another, and where the node has none, the
// last that it had.
func Find(w World, name string) (topic.Ref, error) {
	var here []topic.Ref
	for _, row := range pods.Build(w.World) {
		if called(row.Ref, name) {
			here = append(here, row.Ref)
		}
	}
	slices.SortStableFunc(here, func(a, b topic.Ref) int {
		return cmp.Or(w.Updates[b.UID].FirstSeen.Compare(w.Updates[a.UID].FirstSeen))
	})
	if len(here) == 0 {
		for _, s := range slices.Backward(w.Steps) {
			if called(s.Ref, name) {
				here = append(here, s.Ref)
			}
		}
	}
	if len(here) == 0 {
		return topic.Ref{}, fmt.Errorf("this node knows no pod %s: is it scheduled to this node? (kubectl get pod -o wide; kubelot pods lists the node's)", name)
	}
	for _, other := range here {
		if other.Namespace != here[0].Namespace {
			return topic.Ref{}, fmt.Errorf("there is a pod %s in the namespaces %s and %s: say namespace/name", name, here[0].Namespace, other.Namespace)
		}
	}
	return here[0], nil
}

func called(ref topic.Ref, name string) bool {
	if strings.Contains(name, "/") {
		return name == ref.Namespace+"/"+ref.Name
	}
	return name == ref.Name || name == ref.UID
}
