package agent

import (
	"testing"

	"kubelot.dev/test/bench/measure"
)

func TestMiddleIsTheReadingOfTheMedianTotal(t *testing.T) {
	held := func(pss, store int64) Held {
		return Held{Processes: []measure.Process{{PSS: pss}, {PSS: 1}}, Store: store}
	}
	// By PSS alone it would be another.
	if got := Middle([]Held{held(9, 0), held(5, 5), held(1, 100)}); got.Store != 5 || got.Total() != 11 {
		t.Errorf("middle is %+v", got)
	}
}
