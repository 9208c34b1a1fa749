// Package handover keeps the connections to the runtime that earlier processes of this daemon had when they were
// killed. The runtime would break off what is under way on them if they were closed.
package handover

import (
	"context"
	"log/slog"
	"time"

	"kubelot.dev/bus/pause"
)

const (
	// settleTime is how long after the daemon's start a call may fail because the same call of an earlier process is
	// under way.
	settleTime = 30 * time.Second
	// maxInherited bounds how many earlier processes' connections are kept; the supervisor's store is not much larger.
	maxInherited = 8
)

// Connection is one that the supervisor keeps.
type Connection interface {
	// HungUp reports whether the runtime has closed it.
	HungUp() bool
	// Drop has it closed.
	Drop()
}

// Keeper keeps the connections until nothing can be under way on them.
type Keeper struct {
	connections []Connection
	began       time.Time
	// keep is when the last call on them has ended by its deadline.
	keep time.Duration
	log  *slog.Logger
}

// Take takes over what the supervisor has kept, oldest first, without what is over.
func Take[C Connection](kept []C, requestTimeout time.Duration, log *slog.Logger) *Keeper {
	// The longest calls, for a sandbox, get twice the time.
	h := &Keeper{began: time.Now(), keep: 2 * requestTimeout, log: log}
	for _, c := range kept {
		if c.HungUp() {
			c.Drop()
			continue
		}
		h.connections = append(h.connections, c)
	}
	for len(h.connections) > maxInherited {
		h.connections[0].Drop()
		h.connections = h.connections[1:]
	}
	if len(h.connections) > 0 {
		log.Info("an earlier process was killed; keeping its connections to the runtime until its calls have ended",
			"connections", len(h.connections), "at_most", h.keep)
	}
	return h
}

// Settling reports whether calls of an earlier process may be under way. Such calls may take longer, but then the
// runtime has a problem that must be reported. It may be called from any goroutine.
func (h *Keeper) Settling() bool {
	return len(h.connections) > 0 && time.Since(h.began) < settleTime
}

// Run drops the connections when nothing can be under way on them. If ctx ends before, the next process gets them.
func (h *Keeper) Run(ctx context.Context) {
	if pause.For(ctx, h.keep); ctx.Err() != nil {
		return
	}
	for _, c := range h.connections {
		c.Drop()
	}
	h.log.Debug("closed the connections of earlier processes", "connections", len(h.connections))
}
