package podsapi

import (
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// queueEvents and queueBytes bound what waits for one watcher. A burst on a full node has some hundred events.
	queueEvents = 512
	queueBytes  = 16 << 20
	// maxWatchers bounds the watchers of all clients.
	maxWatchers = 64
)

var (
	errSlow = status.Error(codes.ResourceExhausted,
		"the watch was ended because its events weren't read fast enough: watch again")
	errTooManyWatchers = status.Errorf(codes.ResourceExhausted, "there are %d watches, more aren't possible", maxWatchers)
	errStops           = status.Error(codes.Unavailable, "the node's Pods API stops: watch again")
)

// watcher is one WatchPods. The owner of the watchers sends, one other goroutine receives.
type watcher struct {
	// initial are the pods that were there when it began.
	initial [][]byte
	// events is closed at the end of the watch. Before that why says why it ends, and ended is set: what is received
	// since is not to be sent, as something before it may be missing.
	events chan *event
	ended  atomic.Bool
	why    error
	// waiting is the size of what is in events.
	waiting atomic.Int64
}

// offer queues the event, and reports whether there is room for it. Only the owner may call it.
func (w *watcher) offer(e *event) bool {
	size := int64(len(e.pod))
	if len(w.events) == cap(w.events) || len(w.events) > 0 && w.waiting.Load()+size > queueBytes {
		return false
	}
	w.waiting.Add(size)
	w.events <- e
	return true
}

// take is for what was received from events. The error ends the watch.
func (w *watcher) take(e *event, ok bool) (*event, error) {
	if !ok || w.ended.Load() {
		return nil, w.why
	}
	w.waiting.Add(-int64(len(e.pod)))
	return e, nil
}

// end ends the watch. What its client hasn't got by now it doesn't get: this may be much, and the client has to begin
// again in any case.
func (w *watcher) end(why error) {
	w.why = why
	w.ended.Store(true)
	for len(w.events) > 0 {
		select {
		case <-w.events:
		default: // its receiver was faster
		}
	}
	close(w.events)
}

// watchers are all that watch. They belong to one goroutine.
type watchers struct {
	all map[*watcher]bool
	// closed refuses new ones.
	closed bool
}

// add takes in a watcher that has been told of the pods.
func (ws *watchers) add(pods [][]byte) (*watcher, error) {
	switch {
	case ws.closed:
		return nil, errStops
	case len(ws.all) >= maxWatchers:
		return nil, errTooManyWatchers
	}
	w := &watcher{initial: pods, events: make(chan *event, queueEvents)}
	ws.all[w] = true
	return w, nil
}

// remove takes out a watcher whose client has gone.
func (ws *watchers) remove(w *watcher) { delete(ws.all, w) }

// tell tells all of an event, and returns how many were too slow for it. These are ended.
func (ws *watchers) tell(e *event) (dropped int) {
	for w := range ws.all {
		if !w.offer(e) {
			ws.remove(w)
			w.end(errSlow)
			dropped++
		}
	}
	return dropped
}

// close ends all.
func (ws *watchers) close() {
	ws.closed = true
	for w := range ws.all {
		ws.remove(w)
		w.end(errStops)
	}
}
