package stats

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	type sample struct {
		at    float64
		total uint64
		rate  uint64 // in millicores
		rated bool
	}
	for name, samples := range map[string][]sample{
		"none at first":        {{at: 0, total: 5}},
		"since the one before": {{at: 0}, {at: 10, total: 5e9, rate: 500, rated: true}},
		"a moment later":       {{at: 0}, {at: .2, total: 1e8, rate: 500, rated: true}},
		"over a window where there is one": {
			{at: 0},
			{at: 10, total: 10e9, rate: 1000, rated: true},
			{at: 10.1, total: 10e9, rate: 990, rated: true},
			{at: 20, total: 10e9, rated: true},
		},
		"not over an hour": {
			{at: 0},
			{at: 3600, total: 5e9},
			{at: 3610, total: 15e9, rate: 1000, rated: true},
		},
		"a cgroup created again": {
			{at: 0, total: 9e9},
			{at: 10, total: 1e9},
			{at: 20, total: 2e9, rate: 100, rated: true},
		},
		"not over a moment": {
			{at: 0}, {at: .003, total: 3e6}, {at: .2, total: 1e8, rate: 500, rated: true},
		},
		"twice at one time": {{at: 0, total: 1}, {at: 0, total: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRates()
			for i, s := range samples {
				rate, ok := r.add("/a", point{at(s.at), s.total})
				if ok != s.rated || rate/1e6 != s.rate {
					t.Errorf("sample %d: %d millicores, %v; want %d, %v", i, rate/1e6, ok, s.rate, s.rated)
				}
			}
			r.add("/b", point{at(3600 + 7200), 0})
			if len(r.points) != 1 {
				t.Error("samples of a cgroup that is gone are kept")
			}
		})
	}
}
