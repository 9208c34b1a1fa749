// Package turns has plugins asked about one pod after the other. There are plugins that go by the order of the calls,
// and answer one pod with what is another's where calls overlap.
package turns

import (
	"context"

	"kubelot.dev/services/resource/internal/devices"
)

// Turns are those of the pods whose plugins are asked: by resource, the end of the last one. They belong to one
// goroutine.
type Turns map[string]<-chan struct{}

// Turn is that of one pod, at the plugins of all its resources. The zero value is of a pod that needs none.
type Turn struct {
	before []<-chan struct{}
	over   chan struct{}
}

// Take takes the next turn at each plugin. Nobody waits in a circle: a pod takes all its turns at once.
func (t Turns) Take(needs []devices.Need) Turn {
	if len(needs) == 0 {
		return Turn{}
	}
	mine := Turn{over: make(chan struct{})}
	for _, need := range needs {
		if before := t[need.Resource]; before != nil && before != mine.over {
			mine.before = append(mine.before, before)
		}
		t[need.Resource] = mine.over
	}
	return mine
}

// Wait waits for the ends of the turns before this one.
func (t Turn) Wait(ctx context.Context) error {
	for _, before := range t.before {
		select {
		case <-before:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// End ends the turn. One that was given up ends after those before it, which is waited for in the background.
func (t Turn) End(background func(f func())) {
	if t.over == nil {
		return
	}
	background(func() {
		for _, before := range t.before {
			<-before
		}
		close(t.over)
	})
}
