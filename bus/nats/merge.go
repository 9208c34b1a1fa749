package nats

import (
	"context"
	"sync"

	"kubelot.dev/bus"
)

// merge hands the messages of all sources to out until ctx ends: first what was kept, in the order of
// its time over all sources, then a Synced mark, then live messages as they come.
func merge(ctx context.Context, sources []*eventSource, out chan<- bus.Delivery) {
	if !mergeKept(ctx, sources, out) {
		return
	}
	select {
	case out <- bus.Delivery{Synced: true, Ack: func() {}}:
	case <-ctx.Done():
		return
	}
	var live sync.WaitGroup
	defer live.Wait()
	for _, src := range sources {
		live.Go(func() {
			for {
				a, ok := receive(ctx, src)
				if !ok || !src.emit(ctx, a, out) {
					return
				}
			}
		})
	}
}

// mergeKept is a merge by time until every source has caught up; false means that ctx has ended.
func mergeKept(ctx context.Context, sources []*eventSource, out chan<- bus.Delivery) bool {
	heads := map[*eventSource]arrival{}
	behind := append([]*eventSource(nil), sources...)
	for {
		waiting := behind[:0:0]
		for _, src := range behind {
			if _, have := heads[src]; !have {
				a, ok := receive(ctx, src)
				if !ok {
					return false
				}
				if a.Subject != "" {
					heads[src] = a
				}
				if a.pending == 0 {
					continue // caught up; its head, if any, still takes part
				}
			}
			waiting = append(waiting, src)
		}
		behind = waiting
		src := earliest(heads)
		if src == nil {
			return true
		}
		if !src.emit(ctx, heads[src], out) {
			return false
		}
		delete(heads, src)
	}
}

func earliest(heads map[*eventSource]arrival) *eventSource {
	var first *eventSource
	for src, a := range heads {
		if first == nil || a.Time.Before(heads[first].Time) {
			first = src
		}
	}
	return first
}

func receive(ctx context.Context, src *eventSource) (arrival, bool) {
	select {
	case a := <-src.out:
		return a, true
	case <-ctx.Done():
		return arrival{}, false
	}
}

// emit hands a to the reader. The idle mark of a later session is left out.
func (src *eventSource) emit(ctx context.Context, a arrival, out chan<- bus.Delivery) bool {
	if a.Subject == "" {
		return true
	}
	select {
	case out <- bus.Delivery{Message: a.Message, Ack: src.position.acker(a.seq)}:
		return true
	case <-ctx.Done():
		return false
	}
}
