// Package slots bounds how many of the runtime's expensive calls run at once, and lets the pods
// that came first go first: with more callers than slots, all of an older pod's calls are
// served before a younger pod's. A hundred pods that start or stop together then finish one
// after the other and not all at the end. What is bounded is work and not waiting: a call that takes much longer than
// such calls do keeps its slot from the others for a while only.
package slots

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Patience is how long a caller has its slot to itself: some times what calls took of late, which is a few hundred milliseconds on
// a machine that isn't slow, and half of that for each round of calls that took longer. Those wait for something, and so may the next.
type Patience struct {
	// Most and Least are the bounds. A call that ends within Most has worked all the time, however long it took.
	Most, Least time.Duration
}

const (
	// factor is how many times as long as those of late a call may take.
	factor = 4
	// usual is what calls take before any has ended: much, as the machine may be busy or slow. Too short a patience has all calls
	// run at once before the first has shown how long they take.
	usual = 750 * time.Millisecond
	// memory is over how many calls the average goes.
	memory = 8
)

var (
	// Network is for starts that wait for the network plug-in, whose agent may be a pod that needs a slot to start.
	Network = Patience{3 * time.Second, 3 * time.Second}
	// Disk is for calls that take long where the disk is slow, when more of them would make it slower. Only those that hang go
	// beyond it, and as calls of the runtime end after two minutes, about as many as there are slots do so at a time.
	Disk = Patience{time.Minute, time.Minute}
	// Stop is for calls that end something. A container that takes its grace period needs no core meanwhile, and a hundred of
	// them mustn't keep the last from its SIGTERM for longer than the signals themselves take.
	Stop = Patience{10 * time.Second, 20 * time.Millisecond}
)

// Turn is a caller's place among those that wait.
type Turn struct {
	// Rank is the order: a lower one goes first.
	Rank uint64
	// Urgent is closed once the caller mustn't wait any longer; nil means never.
	Urgent <-chan struct{}
}

// Slots is a bounded number of slots, granted in the order of the callers' rank.
type Slots struct {
	mu      sync.Mutex
	free    int // below zero while urgent callers go beyond the bound
	waiting queue
	arrival uint64
	overdue int           // how many rounds of calls were not done in time
	took    time.Duration // by a call on average, of those that have worked all the time
}

// New has n slots, at least one.
func New(n int) *Slots { return &Slots{free: max(n, 1), took: usual} }

// Acquire waits for a slot or the context's end. A lower rank goes first; equal ranks in the
// order of their calls. One that is urgent waits for nobody and goes beyond the bound. After patience somebody else may have the
// slot too. The returned function gives the slot back and may be called once.
func (s *Slots) Acquire(ctx context.Context, turn Turn, patience Patience) (release func(), err error) {
	s.mu.Lock()
	if s.free > 0 || isClosed(turn.Urgent) {
		s.free--
		defer s.mu.Unlock()
		return s.holdLocked(patience), nil
	}
	s.arrival++
	w := &waiter{rank: turn.Rank, arrival: s.arrival, granted: make(chan struct{})}
	heap.Push(&s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.granted:
	case <-turn.Urgent:
		s.goBeyond(w)
	case <-ctx.Done():
		s.abandon(w)
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdLocked(patience), nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// holdLocked gives the slot to a caller, whose release does nothing once its patience is over.
func (s *Slots) holdLocked(patience Patience) (release func()) {
	alone := max(min(factor*s.took, patience.Most)>>min(s.overdue, 30), patience.Least)
	round := s.overdue
	began, timer := time.Now(), time.AfterFunc(alone, func() { s.late(round) })
	return func() { s.release(time.Since(began), patience, timer.Stop()) }
}

// goBeyond takes w out of the queue and gives it a slot that isn't free, if it wasn't granted one meanwhile.
func (s *Slots) goBeyond(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.index >= 0 {
		heap.Remove(&s.waiting, w.index)
		s.free--
	}
}

// abandon takes w out of the queue, or passes its slot on if it was granted meanwhile.
func (s *Slots) abandon(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.index < 0 {
		s.passLocked()
		return
	}
	heap.Remove(&s.waiting, w.index)
}

// Crowded tells whether callers wait for a slot.
func (s *Slots) Crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// release ends a call. Its slot is free unless its patience was over before.
func (s *Slots) release(took time.Duration, patience Patience, inTime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took <= patience.Most {
		s.overdue = 0
		s.took += (took - s.took) / memory
	}
	if inTime {
		s.passLocked()
	}
}

// late passes on the slot of a call that goes on, and counts those that began alike once.
func (s *Slots) late(round int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overdue = max(s.overdue, round+1)
	s.passLocked()
}

// passLocked gives a slot to who waits for it, unless urgent callers hold more than there are.
func (s *Slots) passLocked() {
	if s.free < 0 || len(s.waiting) == 0 {
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
