// Package slots bounds how many of the runtime's expensive calls run at once, and lets the pods
// that came first go first: with more callers than slots, all of an older pod's calls are
// served before a younger pod's. A hundred pods that start together then finish one
// after the other and not all at the end. What is bounded is work and not waiting: a call that takes much longer than
// such calls do keeps its slot from the others for a while only.
package slots

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// How long a caller has its slot to itself. Calls take a few hundred milliseconds.
const (
	// Network is for calls that wait for the network plug-in, whose agent may be a pod that needs a slot to start.
	Network = 3 * time.Second
	// Disk is for calls that take long where the disk is slow, when more of them would make it slower. Only those that hang go
	// beyond it, and as calls of the runtime end after two minutes, about as many as there are slots do so at a time.
	Disk = time.Minute
)

// Slots is a bounded number of slots, granted in the order of the callers' rank.
type Slots struct {
	mu      sync.Mutex
	free    int
	waiting queue
	arrival uint64
}

// New has n slots, at least one.
func New(n int) *Slots { return &Slots{free: max(n, 1)} }

// Acquire waits for a slot or the context's end. A lower rank goes first; equal ranks in the
// order of their calls. After patience somebody else may have the slot too. The returned function gives the slot back and
// may be called once.
func (s *Slots) Acquire(ctx context.Context, rank uint64, patience time.Duration) (release func(), err error) {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return s.hold(patience), nil
	}
	s.arrival++
	w := &waiter{rank: rank, arrival: s.arrival, granted: make(chan struct{})}
	heap.Push(&s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.granted:
		return s.hold(patience), nil
	case <-ctx.Done():
		s.abandon(w)
		return nil, context.Cause(ctx)
	}
}

// hold gives the slot to a caller, whose release does nothing once its patience is over.
func (s *Slots) hold(patience time.Duration) (release func()) {
	timer := time.AfterFunc(patience, s.release)
	return func() {
		if timer.Stop() {
			s.release()
		}
	}
}

// abandon takes w out of the queue, or passes its slot on if it was granted meanwhile.
func (s *Slots) abandon(w *waiter) {
	s.mu.Lock()
	queued := w.index >= 0
	if queued {
		heap.Remove(&s.waiting, w.index)
	}
	s.mu.Unlock()
	if !queued {
		s.release()
	}
}

// Crowded tells whether callers wait for a slot.
func (s *Slots) Crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	close(heap.Pop(&s.waiting).(*waiter).granted)
}

type waiter struct {
	rank, arrival uint64
	index         int // in the queue; -1 once out of it
	granted       chan struct{}
}

type queue []*waiter

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].rank != q[j].rank {
		return q[i].rank < q[j].rank
	}
	return q[i].arrival < q[j].arrival
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for container/heap only.
func (q *queue) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop is for container/heap only.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	last.index = -1
	return last
}
