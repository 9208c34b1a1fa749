package embed

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// askEvery is how often the bus looks whether its server answers.
const askEvery = 5 * time.Second

// pulse is the bus's loop for the watchdog (daemon.Pulse): it asks the embedded server something and only then
// receives. A server that hangs gives no answer, so nothing is received. A server that says that something is wrong is
// alive; the guard looks after that.
func pulse(ctx context.Context, ask func(context.Context), inbox <-chan func()) {
	for ctx.Err() == nil {
		ask(ctx)
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

// asker asks the server for its streams. The wait has no end but ctx's: an answer that takes minutes is the hang that
// the watchdog is to see.
func asker(nc *nats.Conn) func(context.Context) {
	return func(ctx context.Context) { _, _ = nc.RequestWithContext(ctx, "$JS.API.INFO", nil) }
}
