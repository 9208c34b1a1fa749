package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Read takes everything about pods off the bus once.
func Read(ctx context.Context, conn *bus.Conn) (State, error) {
	var w State
	sources, err := topic.PodSources.Read(ctx, conn)
	if err != nil {
		return w, err
	}
	w.Sources = sources[""]
	if w.Updates, err = topic.PodUpdate.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Merged, err = topic.MergedStatus.Read(ctx, conn); err != nil {
		return w, err
	}
	if w.Statuses, err = topic.StatusPatch.Read(ctx, conn); err != nil {
		return w, err
	}
	w.Observations, err = topic.PLEGEvent.Read(ctx, conn)
	return w, err
}

// errNotSettled says that pods still don't run when the time is over.
var errNotSettled = errors.New("not all pods are running")

// Wait waits until all wanted pods run, or until ctx ends, and returns the rows of the last look.
func Wait(ctx context.Context, conn *bus.Conn) ([]Row, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var rows []Row
	waiting := []string{"the bus"}
	for {
		if state, err := Read(ctx, conn); err == nil {
			rows = Build(state)
			var settled bool
			if settled, waiting = allRun(state, rows); settled {
				return rows, nil
			}
		}
		select {
		case <-ctx.Done():
			return rows, fmt.Errorf("%w: waiting for %v", errNotSettled, waiting)
		case <-look.C:
		}
	}
}

// lookEvery is the pause between two looks of Wait; a person waits for it.
const lookEvery = 250 * time.Millisecond
