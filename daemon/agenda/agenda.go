// Package agenda orders things by time, so that one timer serves many things and those that aren't due cost nothing.
//
// # Guarantees
//
//   - Setting, moving, removing or taking one of n things costs O(log n). Asking for the first one costs O(1).
//   - The package has no clock. The caller gives the time.
package agenda

import (
	"container/heap"
	"time"
)

// Place is where a thing is on its agenda. Things embed it, and are on one agenda at a time.
type Place struct {
	at    time.Time
	index int // plus one; zero on none
}

func (p *Place) place() *Place { return p }

// Thing is a pointer to what embeds a Place.
type Thing interface {
	comparable
	place() *Place
}

// Agenda are things by their times. It belongs to one goroutine. The zero value is empty.
type Agenda[T Thing] struct {
	// Tie compares things of the same time; nil leaves their order open.
	Tie    func(a, b T) int
	things []T
}

// Set puts the thing on the agenda, or moves it to another time.
func (a *Agenda[T]) Set(thing T, at time.Time) {
	p := thing.place()
	p.at = at
	if a.Has(thing) {
		heap.Fix((*order[T])(a), p.index-1)
		return
	}
	heap.Push((*order[T])(a), thing)
}

// Remove takes the thing off, if it is on the agenda.
func (a *Agenda[T]) Remove(thing T) {
	if a.Has(thing) {
		heap.Remove((*order[T])(a), thing.place().index-1)
	}
}

// Has reports whether the thing is on this agenda.
func (a *Agenda[T]) Has(thing T) bool {
	i := thing.place().index - 1
	return i >= 0 && i < len(a.things) && a.things[i] == thing
}

// Len is how many things are on the agenda.
func (a *Agenda[T]) Len() int { return len(a.things) }

// First is the thing of the earliest time; ok is false if there is none.
func (a *Agenda[T]) First() (thing T, ok bool) {
	if len(a.things) == 0 {
		return thing, false
	}
	return a.things[0], true
}

// Next is the earliest time; zero if there is none.
func (a *Agenda[T]) Next() time.Time {
	if len(a.things) == 0 {
		return time.Time{}
	}
	return a.things[0].place().at
}

// Take takes off the first thing if its time has come at now; ok is false if there is none.
func (a *Agenda[T]) Take(now time.Time) (thing T, ok bool) {
	if thing, ok = a.First(); !ok || thing.place().at.After(now) {
		var none T
		return none, false
	}
	heap.Pop((*order[T])(a))
	return thing, true
}

// order is the agenda as container/heap wants it.
type order[T Thing] Agenda[T]

func (o *order[T]) Len() int { return len(o.things) }

func (o *order[T]) Less(i, j int) bool {
	a, b := o.things[i], o.things[j]
	c := a.place().at.Compare(b.place().at)
	if c == 0 && o.Tie != nil {
		c = o.Tie(a, b)
	}
	return c < 0
}

func (o *order[T]) Swap(i, j int) {
	o.things[i], o.things[j] = o.things[j], o.things[i]
	o.things[i].place().index, o.things[j].place().index = i+1, j+1
}

func (o *order[T]) Push(x any) {
	thing := x.(T)
	o.things = append(o.things, thing)
	thing.place().index = len(o.things)
}

func (o *order[T]) Pop() any {
	last := len(o.things) - 1
	thing := o.things[last]
	var none T
	o.things[last] = none // or the array would keep it
	o.things = o.things[:last]
	thing.place().index = 0
	return thing
}
