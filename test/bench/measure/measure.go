// Package measure turns samples into figures, and reads what processes take.
//
// Reads: /proc, and the metrics sockets that it is asked for. Writes, owns: nothing.
//
// Guarantees: no figure of an empty sample is a number.
package measure

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Settle is how long a single pod runs before it is deleted. A process that has
// not yet set up its signal handling loses the SIGTERM, as process 1 of its
// namespace, and is killed after the grace period: that would be measured.
const Settle = 500 * time.Millisecond

// Sample is a set of durations of the same thing.
type Sample []time.Duration

// Median is the middle value, the upper one of two; zero without values.
func (s Sample) Median() time.Duration { return s.Quantile(0.5) }

// P95 is the value that 95 % don't exceed.
func (s Sample) P95() time.Duration { return s.Quantile(0.95) }

// P99 is the value that 99 % don't exceed.
func (s Sample) P99() time.Duration { return s.Quantile(0.99) }

// Max is the largest value.
func (s Sample) Max() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

// Quantile is the value that the share q of the sample doesn't exceed.
func (s Sample) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(math.Floor(q*float64(len(sorted)))), len(sorted)-1)]
}

// Figures are the results of one subject in one round, by the key of their measure. Durations are in seconds,
// memory is in bytes, idle CPU in millicores.
type Figures map[string]float64

// Add takes in others' figures.
func (f Figures) Add(other Figures) { maps.Copy(f, other) }

// Time notes the figures of a sample under the key: <key>.p50 and so on. An empty sample has none.
func (f Figures) Time(key string, s Sample, which ...string) {
	if len(s) == 0 {
		return
	}
	of := map[string]func() time.Duration{"p50": s.Median, "p95": s.P95, "p99": s.P99, "last": s.Max, "max": s.Max}
	for _, name := range which {
		f[key+"."+name] = of[name]().Seconds()
	}
}

// Batch is many pods at once: when each was done, counted from the moment the
// first was asked for.
type Batch struct {
	Parallel int // of the bare client; zero for an agent, which decides itself
	Times    Sample
}
