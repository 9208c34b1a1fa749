package podsapi

import (
	"context"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Source is where pods and statuses come from, both by the pod's UID. A channel delivers what there is, a Synced change
// and then what changes, as bus.State.Watch does, until ctx ends.
type Source interface {
	Pods(ctx context.Context) (<-chan bus.Change[topic.Pod], error)
	Statuses(ctx context.Context) (<-chan bus.Change[topic.Merged], error)
}

// FromBus is the source of the daemon, which must read pod.update and pod.status by its contract.
func FromBus(conn *bus.Conn) Source { return fromBus{conn} }

type fromBus struct{ conn *bus.Conn }

func (b fromBus) Pods(ctx context.Context) (<-chan bus.Change[topic.Pod], error) {
	return topic.PodUpdate.Watch(ctx, b.conn)
}

func (b fromBus) Statuses(ctx context.Context) (<-chan bus.Change[topic.Merged], error) {
	return topic.MergedStatus.Watch(ctx, b.conn)
}
