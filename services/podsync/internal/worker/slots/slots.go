// Package slots bounds how many of the runtime's expensive calls run at once. Slots are granted in the order of the
// pods' arrival: if there are more callers than slots, all calls of an older pod come before those of a younger pod. So
// a hundred pods that start or stop together finish one after the other, and not all at the end.
//
// Calls that have failed before get a share of the slots. They can't block the first try of others, and others can't
// block their next try. Slots bound work, not waiting: a call that takes much longer than others gives up its slot
// after a while, and continues without it.
package slots

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Patience is how long a caller has its slot to itself. It is a multiple of the time that recent calls took, which is a
// few hundred milliseconds on a machine that isn't slow. It is halved for each round of calls that took longer: those
// calls were waiting for something, and the next ones may do so too.
type Patience struct {
	// Most and Least are the bounds. A call that ends within Most counts as one that worked all the time.
	Most, Least time.Duration
}

const (
	// factor is how many times as long as recent calls a call may take.
	factor = 4
	// usual is the least that is taken for the time of a call. It is long, because the machine may be busy or slow: if
	// the patience is too short, all calls run at once before the first has shown how long they take. Calls that had the
	// machine to themselves, before a burst, took much less than those of the burst do.
	usual = 750 * time.Millisecond
	// memory is the number of calls over which the average is taken.
	memory = 8
)

var (
	// Network is for starts that wait for the network plug-in, whose agent may be a pod that needs a slot to start.
	Network = Patience{3 * time.Second, 3 * time.Second}
	// Disk is for calls that take long if the disk is slow: more of them at once would make it slower still. Only a call
	// that hangs takes longer than a minute. Calls of the runtime end after two minutes, so at any time about as many
	// calls have exceeded their patience as there are slots.
	Disk = Patience{time.Minute, time.Minute}
	// Stop is for calls that end something. A container that uses its grace period needs no core meanwhile. If a hundred
	// of them stop, the last must get its SIGTERM as soon as those before it have got theirs.
	Stop = Patience{10 * time.Second, 20 * time.Millisecond}
)

// Turn is a caller's place among those that wait.
type Turn struct {
	// Rank is the order: a lower one goes first.
	Rank uint64
	// Failed is set if the call's last try has failed. Such calls are served in the order in which they come.
	Failed bool
	// Urgent is closed once the caller mustn't wait any longer; nil means never.
	Urgent <-chan struct{}
}

// share bounds what failed calls get: while other calls wait too, every fourth slot is granted to a call that has
// failed before.
const share = 4

// Slots is a bounded number of slots, granted in the order of the callers' rank.
type Slots struct {
	mu      sync.Mutex
	free    int // below zero while urgent callers go beyond the bound
	waiting queue
	failed  queue // those whose last try has failed
	inRow   int   // how many slots others got since a call of failed got one
	arrival uint64
	overdue int           // how many rounds of calls were not done in time
	took    time.Duration // the average time of calls that worked all the time, at least usual
}

// New returns n slots, at least one.
func New(n int) *Slots { return &Slots{free: max(n, 1), took: usual} }

// Acquire waits for a slot or for the end of ctx. The lowest rank is served first, and equal ranks in the order of
// their calls. A call that has failed before waits for its share. An urgent call doesn't wait, and may exceed the
// bound. Once patience is over, somebody else may get the slot too. The returned function gives the slot back and may
// be called once.
func (s *Slots) Acquire(ctx context.Context, turn Turn, patience Patience) (release func(), err error) {
	s.mu.Lock()
	if s.free > 0 || isClosed(turn.Urgent) {
		s.free--
		defer s.mu.Unlock()
		return s.holdLocked(patience), nil
	}
	s.arrival++
	w := &waiter{rank: turn.Rank, arrival: s.arrival, granted: make(chan struct{}), in: &s.waiting}
	if turn.Failed {
		w.rank, w.in = 0, &s.failed
	}
	heap.Push(w.in, w)
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

// goBeyond takes w out of the queue and gives it a slot beyond the bound, unless it was granted one meanwhile.
func (s *Slots) goBeyond(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.index >= 0 {
		heap.Remove(w.in, w.index)
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
	heap.Remove(w.in, w.index)
}

// Crowded reports whether callers wait for a slot.
func (s *Slots) Crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)+len(s.failed) > 0
}

// release ends a call. Its slot is free unless its patience was over before.
func (s *Slots) release(took time.Duration, patience Patience, inTime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took <= patience.Most {
		s.overdue = 0
		s.took = max(usual, s.took+(took-s.took)/memory)
	}
	if inTime {
		s.passLocked()
	}
}

// late passes on the slot of a call that goes on. Calls of the same round count once.
func (s *Slots) late(round int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overdue = max(s.overdue, round+1)
	s.passLocked()
}

// passLocked gives a slot to the next caller that waits, unless urgent callers hold more slots than there are.
func (s *Slots) passLocked() {
	if s.free < 0 || len(s.waiting)+len(s.failed) == 0 {
		s.free++
		return
	}
	next := &s.waiting
	s.inRow++
	if len(s.waiting) == 0 || len(s.failed) > 0 && s.inRow >= share {
		next, s.inRow = &s.failed, 0
	}
	close(heap.Pop(next).(*waiter).granted)
}

type waiter struct {
	rank, arrival uint64
	in            *queue
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
