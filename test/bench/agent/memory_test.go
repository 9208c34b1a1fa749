package agent

import (
	"testing"

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

func TestMiddleIsTheReadingOfTheMedianTotal(t *testing.T) {
	held := func(pss, store int64) Held {
		return Held{Processes: []measure.Process{{PSS: pss}, {PSS: 1}}, Store: store}
	}
	// By PSS alone it would be another.
	if got := Middle([]Held{held(9, 0), held(5, 5), held(1, 100)}); got.Store != 5 || got.Total() != 11 {
		t.Errorf("middle is %+v", got)
	}
}
