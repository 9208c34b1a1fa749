package podsync

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

const (
	// settleTime is how long after a start a call that fails may do so because one of an earlier process is under way.
	settleTime = 30 * time.Second
	// maxInherited bounds how many earlier processes' connections are kept; the supervisor's store is not much larger.
	maxInherited = 8
	// defaultRequestTimeout is that of the configuration.
	defaultRequestTimeout = 2 * time.Minute
)

// connection is one that the supervisor keeps.
type connection interface {
	// HungUp tells whether the runtime has closed it.
	HungUp() bool
	// Drop has it closed.
	Drop()
}

// inherited are the connections to the runtime that earlier processes of this daemon had when they were killed. The
// runtime would break off what is under way on them if they were closed.
type inherited struct {
	connections []connection
	began       time.Time
	// keep is when the last call on them has ended by its deadline.
	keep time.Duration
	log  *slog.Logger
}

// inherit takes over what the supervisor has kept, oldest first, without what is over.
func inherit[C connection](kept []C, requestTimeout time.Duration, log *slog.Logger) *inherited {
	// The longest calls, for a sandbox, get twice the time.
	in := &inherited{began: time.Now(), keep: 2 * cmp.Or(requestTimeout, defaultRequestTimeout), log: log}
	for _, c := range kept {
		if c.HungUp() {
			c.Drop()
			continue
		}
		in.connections = append(in.connections, c)
	}
	for len(in.connections) > maxInherited {
		in.connections[0].Drop()
		in.connections = in.connections[1:]
	}
	if len(in.connections) > 0 {
		log.Info("an earlier process was killed; its connections to the runtime are kept until what it asked for has ended", "connections", len(in.connections), "at_most", in.keep)
	}
	return in
}

// settling tells whether calls of an earlier process may be under way. Their deadlines are later, but a runtime that
// takes this long for one has a problem that is to be told of. It may be asked from any goroutine.
func (in *inherited) settling() bool {
	return len(in.connections) > 0 && time.Since(in.began) < settleTime
}

// run drops the connections when nothing can be under way on them. If ctx ends before, the next process gets them.
func (in *inherited) run(ctx context.Context) {
	timer := time.NewTimer(in.keep)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	for _, c := range in.connections {
		c.Drop()
	}
	in.log.Debug("the connections of earlier processes were closed", "connections", len(in.connections))
}
