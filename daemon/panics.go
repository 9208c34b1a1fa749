package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"kubelot.dev/bus/pause"
)

const (
	// label names the daemon that a goroutine belongs to. Goroutines inherit it from the one that starts them.
	label = "daemon"
	// leavePatience is how long the goroutines of a daemon that panicked may take to end.
	leavePatience = 5 * time.Second
	leaveLook     = 20 * time.Millisecond
)

// panicked is a panic in a daemon's Run.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string {
	return "panic: " + strings.ReplaceAll(fmt.Sprint(p.value), "\n", "; ")
}

// panicIn is the panic that the error is of; nil for none.
func panicIn(err error) *panicked {
	var p *panicked
	if errors.As(err, &p) {
		return p
	}
	return nil
}

// caught turns a panic in the goroutine of run into an error, and ends the context that run got.
func caught(run func(context.Context, Env) error) func(context.Context, Env) error {
	return func(ctx context.Context, env Env) (err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer func() {
			if value := recover(); value != nil {
				err = &panicked{value: value, stack: debug.Stack()}
			}
		}()
		return run(ctx, env)
	}
}

// labelled runs work with the daemon's name as a label on each goroutine that it starts. Profiles of the process show
// it too.
func labelled(ctx context.Context, daemon string, work func(ctx context.Context)) {
	pprof.Do(ctx, pprof.Labels(label, daemon), work)
}

// leftovers waits until no goroutine of the daemon is left, and returns the stacks of those that stay.
func (g *group) leftovers(ctx context.Context, daemon string) string {
	deadline := time.Now().Add(g.leave)
	for {
		left := goroutines(daemon)
		if left == "" || time.Now().After(deadline) {
			return left
		}
		pause.For(ctx, leaveLook)
	}
}

// goroutines are the stacks of the goroutines that carry the daemon's name.
func goroutines(daemon string) string {
	var profile bytes.Buffer
	// A buffer takes everything.
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", label, daemon)) {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
