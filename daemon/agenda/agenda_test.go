package agenda

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type thing struct {
	Place
	name int
}

// Whatever is set, moved and removed, what is taken comes in the order of time, then of ties, and all of it.
func TestAgendaAgainstASortedList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Unix(1000, 0)
	agenda := Agenda[*thing]{Tie: func(a, b *thing) int { return cmp.Compare(a.name, b.name) }}
	other := Agenda[*thing]{}
	things := make([]*thing, 50)
	for i := range things {
		things[i] = &thing{name: i}
	}
	want := map[*thing]time.Time{}
	for range 20000 {
		pick := things[random.IntN(len(things))]
		switch random.IntN(4) {
		case 0, 1:
			want[pick] = begin.Add(time.Duration(random.IntN(20)) * time.Second)
			agenda.Set(pick, want[pick])
		case 2:
			delete(want, pick)
			agenda.Remove(pick)
			other.Remove(pick)
		case 3:
			now := begin.Add(time.Duration(random.IntN(3)) * time.Second)
			for _, expected := range sorted(want, now) {
				if got, ok := agenda.Take(now); !ok || got != expected {
					t.Fatalf("took %v, want %d", got, expected.name)
				}
				delete(want, expected)
			}
			if got, ok := agenda.Take(now); ok {
				t.Fatalf("took %d, which isn't due", got.name)
			}
		}
		if _, known := want[pick]; known != agenda.Has(pick) || agenda.Len() != len(want) || other.Has(pick) {
			t.Fatalf("on the agenda: %v of %d; want %v of %d", agenda.Has(pick), agenda.Len(), known, len(want))
		}
		if all := sorted(want, begin.Add(time.Hour)); len(all) > 0 && !agenda.Next().Equal(want[all[0]]) {
			t.Fatalf("the next is at %s, want %s", agenda.Next(), want[all[0]])
		} else if len(all) == 0 && !agenda.Next().IsZero() {
			t.Fatalf("the next is at %s, want none", agenda.Next())
		}
	}
}

func sorted(all map[*thing]time.Time, now time.Time) []*thing {
	var due []*thing
	for thing, at := range all {
		if !at.After(now) {
			due = append(due, thing)
		}
	}
	slices.SortFunc(due, func(a, b *thing) int {
		return cmp.Or(all[a].Compare(all[b]), cmp.Compare(a.name, b.name))
	})
	return due
}

// A thing on one agenda is neither on another nor taken off it by mistake.
func TestThingOfAnotherAgenda(t *testing.T) {
	var a, b Agenda[*thing]
	here, there := &thing{name: 1}, &thing{name: 2}
	a.Set(here, time.Unix(1, 0))
	b.Set(there, time.Unix(1, 0))
	b.Remove(here)
	if !a.Has(here) || b.Has(here) || !b.Has(there) || b.Len() != 1 {
		t.Errorf("a has its thing: %v, b has it: %v, b has its own: %v", a.Has(here), b.Has(here), b.Has(there))
	}
}
