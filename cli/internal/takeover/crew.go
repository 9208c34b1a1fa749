package takeover

import (
	"context"
	"fmt"
	"strings"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
)

const (
	// settle is how long the crew must be well to have arrived.
	settle = 3 * time.Second
	look   = 200 * time.Millisecond
)

// needed are the daemons without which a node is of no use, or would forget what its pods have for themselves.
var needed = []string{"podsync", "pleg", "volume", "resource", "probe", "status", "lease", "stats"}

// Well waits until the crew is well, and stays so for a moment. read reads what the daemons say.
func Well(ctx context.Context, patience time.Duration,
	read func(context.Context) (map[string]topic.DaemonHealth, error),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %s", patience))
	defer cancel()
	since := time.Now()
	for {
		healths, err := read(ctx)
		problem := missing(healths, time.Now())
		if err != nil {
			problem = err.Error()
		}
		switch {
		case problem != "":
			since = time.Now()
		case time.Since(since) >= settle:
			return nil
		}
		pause.For(ctx, look)
		if ctx.Err() != nil {
			return fmt.Errorf("the crew is not well: %s (%w)", problem, context.Cause(ctx))
		}
	}
}

// missing says what is wrong with the daemons that are needed.
func missing(healths map[string]topic.DaemonHealth, now time.Time) string {
	var problems []string
	for _, name := range needed {
		problem := "says nothing yet"
		if h, there := healths[name]; there {
			problem = health.Problem(h, now)
		}
		if problem != "" {
			problems = append(problems, "kubelot-"+name+": "+problem)
		}
	}
	return strings.Join(problems, "; ")
}
