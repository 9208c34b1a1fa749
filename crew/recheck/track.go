package recheck

import (
	"sort"
	"time"
)

// entry is one value of a key: from when on it was stated, or that it was taken back.
type entry[T any] struct {
	at    time.Time
	value T
	gone  bool
	// retained is true for what the bus had before the recording began: when it was stated first isn't known.
	retained bool
}

// track are the values of a key in the order of their times.
type track[T any] []entry[T]

// index is the position of the value in effect at a time; -1 if there is none.
func (t track[T]) index(at time.Time) int {
	return sort.Search(len(t), func(i int) bool { return t[i].at.After(at) }) - 1
}

// last is the value in effect at a time.
func (t track[T]) last(at time.Time) (value T, ok bool) {
	if i := t.index(at); i >= 0 && !t[i].gone {
		return t[i].value, true
	}
	return value, false
}

// during are the values in effect at any time of a period, the oldest first.
func (t track[T]) during(from, to time.Time) []T {
	var values []T
	for i := max(t.index(from), 0); i < len(t) && !t[i].at.After(to); i++ {
		if !t[i].gone {
			values = append(values, t[i].value)
		}
	}
	return values
}

// times are when the value changed in a period.
func (t track[T]) times(from, to time.Time) []time.Time {
	var times []time.Time
	for i := range t {
		if !t[i].at.Before(from) && !t[i].at.After(to) {
			times = append(times, t[i].at)
		}
	}
	return times
}
