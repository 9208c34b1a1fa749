package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/test/bench/measure"
)

func TestFreshKnowsDaemonsFromTheirSupervisor(t *testing.T) {
	var h Held
	for name, private := range map[string]int64{"up": 99, "bus": 11, "gc": 7, "probe": 6} {
		h.Processes = append(h.Processes, measure.Process{Name: name, PSS: 1, Private: private})
	}
	f := h.fresh()
	if f["fresh.private.largest"] != 11 || f["fresh.private.median"] != 7 || f["fresh.private.up"] != 99 ||
		f["fresh.memory"] != 4 {
		t.Errorf("figures %v", f)
	}
}

// What else is in the run directory, such as sockets and the other daemons' state, isn't the bus's.
func TestTheBusHasItsPrivateMemoryAndItsStore(t *testing.T) {
	h := Held{Store: 50, BusStore: 30, Processes: []measure.Process{
		{Name: supervisor, PSS: 7, Private: 5}, {Name: "bus", PSS: 200, Private: 100},
	}}
	f := h.churned(Held{Store: 1})
	if f["memory.bus"] != 130 || f["memory.total"] != 257 || f["memory.units"] != 250 || f["memory.soon"] != 1 ||
		f["memory.store"] != 50 {
		t.Errorf("figures %v", f)
	}
}

func TestTheBriefFormRestsOnce(t *testing.T) {
	const rest, reading = 30 * time.Second, 15 * time.Second
	for brief, want := range map[bool]time.Duration{false: 165 * time.Second, true: 60 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := Bench{Options: Options{Agent: self{}, RestFor: rest, Brief: brief}}
			begin := time.Now()
			soon, held, err := b.restedLong(t.Context())
			if err != nil || soon.pss() <= 0 || held.pss() <= 0 {
				t.Errorf("held %+v and %+v, %v", soon, held, err)
			}
			if took := time.Since(begin) - reading; took != want || ChurnRest(rest, brief) != want {
				t.Errorf("brief %v: it rested for %v, and says %v; want %v", brief, took, ChurnRest(rest, brief), want)
			}
		})
	}
}

func TestMiddleIsTheReadingOfTheMedianTotal(t *testing.T) {
	held := func(pss, store int64) Held {
		return Held{Processes: []measure.Process{{PSS: pss}, {PSS: 1}}, Store: store}
	}
	// By PSS alone it would be another.
	if got := Middle([]Held{held(9, 0), held(5, 5), held(1, 100)}); got.Store != 5 || got.Total() != 11 {
		t.Errorf("middle is %+v", got)
	}
}
