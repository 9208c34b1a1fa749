// Package measure turns samples into the figures of the benchmark's table.
//
// Reads, writes, owns: nothing but its arguments; usage.go reads /proc.
//
// Guarantees: no figure of an empty sample is a number.
package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// Settle is how long a single pod runs before it is deleted. A process that has
// not yet set up its signal handling loses the SIGTERM, as process 1 of its
// namespace, and is killed after the grace period: that would be measured.
const Settle = 500 * time.Millisecond

// Sample is a set of durations of the same thing.
type Sample []time.Duration

// Median is the middle value, the upper one of two; zero without values.
func (s Sample) Median() time.Duration { return s.quantile(0.5) }

// P95 is the value that 95 % don't exceed.
func (s Sample) P95() time.Duration { return s.quantile(0.95) }

// Max is the largest value.
func (s Sample) Max() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

func (s Sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(math.Floor(q*float64(len(sorted)))), len(sorted)-1)]
}

// Batch is many pods at once: when each was done, counted from the moment the
// first was asked for.
type Batch struct {
	Parallel int    `json:"parallel,omitempty"` // of the bare client; zero for an agent, who decides itself
	Times    Sample `json:"times"`
}

// Result is what one subject (the bare calls, or an agent) did.
type Result struct {
	Subject string `json:"subject"`
	Create  Sample `json:"create"` // one pod at a time: asked for until it runs (an agent: until Ready is seen)
	Delete  Sample `json:"delete"` // one pod at a time: asked for until it is gone
	Starts  Batch  `json:"starts"`
	Stops   Batch  `json:"stops"`
	// Usage of the agent's processes; nil for the bare calls.
	Usage *Usage `json:"usage,omitempty"`
	// Calls are the medians of the single CRI calls, for the bare client.
	Calls map[string]time.Duration `json:"calls,omitempty"`
}

// Table writes the results side by side.
func Table(w io.Writer, results []Result) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(title string, cell func(Result) string) {
		fmt.Fprint(out, title)
		for _, r := range results {
			fmt.Fprint(out, "\t", cell(r))
		}
		fmt.Fprintln(out)
	}
	row("", func(r Result) string { return r.Subject })
	row("one pod, create to Ready, median (p95)", func(r Result) string { return pair(r.Create.Median(), r.Create.P95()) })
	row("one pod, delete to gone, median (p95)", func(r Result) string { return pair(r.Delete.Median(), r.Delete.P95()) })
	row("many at once, all Ready (median)", func(r Result) string { return r.Starts.String() })
	row("many at once, all gone (median)", func(r Result) string { return r.Stops.String() })
	for _, line := range usageRows {
		row(line.title, func(r Result) string {
			if r.Usage == nil {
				return "-"
			}
			return line.cell(r.Usage)
		})
	}
	return out.Flush()
}

// JSON writes the results with all samples, durations in nanoseconds.
func JSON(w io.Writer, results []Result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(results); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func (b Batch) String() string {
	if len(b.Times) == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d: %s", len(b.Times), pair(b.Times.Max(), b.Times.Median()))
	if b.Parallel > 0 {
		text += fmt.Sprintf(", %d in parallel", b.Parallel)
	}
	return text
}

func pair(a, b time.Duration) string {
	if a == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f s (%.3f)", a.Seconds(), b.Seconds())
}
