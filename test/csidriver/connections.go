package csidriver

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// connections logs when the node agent closes a connection, as it does when it dies.
type connections struct{ log *callLog }

// connection is one of those; node is true once a call for a node came by it.
type connection struct{ node atomic.Bool }

type connectionKey struct{}

// of notes by which connection a call came.
func of(ctx context.Context, method string) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok && strings.HasPrefix(method, "Node") {
		c.node.Store(true)
	}
}

func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

func (s connections) HandleConn(ctx context.Context, event stats.ConnStats) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if _, end := event.(*stats.ConnEnd); end && ok && c.node.Load() {
		s.log.note(Call{HungUp: true})
	}
}

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (connections) HandleRPC(context.Context, stats.RPCStats)                       {}
