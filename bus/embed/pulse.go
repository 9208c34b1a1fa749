package embed

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"kubelot.dev/bus/pause"
)

const (
	// askEvery is how often the bus looks whether its server answers.
	askEvery = 5 * time.Second
	// askAgain is the pause before a question that got no answer is asked again.
	askAgain = 100 * time.Millisecond
)

// pulse is the bus's loop for the watchdog (daemon.Pulse): it asks the embedded server something and receives only once
// ask has reported an answer. A server that hangs gives none, so nothing is received. A server that says that something
// is wrong is alive; the guard looks after that.
func pulse(ctx context.Context, ask func(context.Context) bool, inbox <-chan func()) {
	for ctx.Err() == nil {
		if !ask(ctx) {
			pause.For(ctx, askAgain)
			continue
		}
		asked := time.Now()
		for ctx.Err() == nil && time.Since(asked) < askEvery {
			select {
			case work := <-inbox:
				work()
			case <-time.After(askEvery):
			case <-ctx.Done():
			}
		}
	}
}

// asker asks the server for its streams, and reports whether it has answered. The wait ends only with ctx or with the
// connection, which loses the question: an answer that takes minutes is the hang that the watchdog is to see.
func asker(nc *nats.Conn) func(context.Context) bool {
	return func(ctx context.Context) bool {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		lost := nc.StatusChanged(nats.RECONNECTING)
		defer nc.RemoveStatusListener(lost) // closes it
		go func() {
			<-lost
			cancel()
		}()
		_, err := nc.RequestWithContext(ctx, "$JS.API.INFO", nil)
		return err == nil || errors.Is(err, nats.ErrNoResponders)
	}
}
