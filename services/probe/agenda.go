package probe

import (
	"container/heap"
	"time"
)

// agenda are the probes that neither run nor wait for their turn, by the time of their next run: one timer serves them all.
type agenda []*probe

// until takes out the probes that are due at now, and tells when the next one is; zero if there is none.
func (a *agenda) until(now time.Time) (due []*probe, next time.Time) {
	for len(*a) > 0 {
		first := (*a)[0]
		if first.due.After(now) {
			return due, first.due
		}
		a.remove(first)
		due = append(due, first)
	}
	return due, time.Time{}
}

func (a *agenda) add(p *probe) { heap.Push(a, p) }

func (a *agenda) remove(p *probe) { heap.Remove(a, p.place) }

// Len is heap.Interface's.
func (a *agenda) Len() int { return len(*a) }

// Less is heap.Interface's.
func (a *agenda) Less(i, j int) bool { return (*a)[i].due.Before((*a)[j].due) }

// Swap is heap.Interface's.
func (a *agenda) Swap(i, j int) {
	(*a)[i], (*a)[j] = (*a)[j], (*a)[i]
	(*a)[i].place, (*a)[j].place = i, j
}

// Push is heap.Interface's.
func (a *agenda) Push(x any) {
	p := x.(*probe)
	p.place = len(*a)
	*a = append(*a, p)
}

// Pop is heap.Interface's.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	p := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	p.place = -1
	return p
}
