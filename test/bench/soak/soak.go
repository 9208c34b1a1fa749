// Package soak finds what a node keeps of pods that have gone: it fits a line through what the crew holds against
// the number of pods that came and went, and fails on growth per pod.
//
// Reads: the crew's processes and files, by package crew. Writes, owns: nothing.
//
// Guarantees: growth decides that is significant and larger than the measure's limit per pod. A run that is too short
// or too noisy to see a leak fails. What the bus holds is compared at rest: while pods come and go it has tombstones of
// the last ones, and blocks that are not yet compacted.
package soak

import (
	"context"
	"fmt"
	"slices"
	"time"

	"kubelot.dev/test/bench/crew"
)

// Sample is what the crew held when so many pods had come and gone and none was left.
type Sample struct {
	Pods int `json:"pods"`
	// Rested marks one before which the crew had the long rest.
	Rested bool `json:"rested,omitempty"`
	crew.Reading
}

// Pods has pods come and go.
type Pods interface {
	Run(ctx context.Context, n int) error
	RunFor(ctx context.Context, d time.Duration) error
	Gone() int
}

// Plan says when samples are taken.
type Plan struct {
	// For is how long pods come and go, with a long rest at half of it and one at the end; zero leaves it to Marks.
	For time.Duration
	// Marks are numbers of pods, in ascending order, at each of which a sample is taken; the last one ends the run.
	Marks []int
	// Every is the number of pods between samples, or with For the time is Pause.
	Every int
	Pause time.Duration
	// Settle is how long the crew rests before a sample. A daemon gives memory back when it has rested for 5 to 10 s.
	Settle time.Duration
	// Rest is how long the long rest before a sample at a mark is, if that is longer: until the bus has dropped its last
	// tombstones and given back the memory that they took.
	Rest time.Duration
	// Told is given each sample.
	Told func(Sample)
}

// Run takes the samples; read is crew.Crew.Read.
func Run(ctx context.Context, pods Pods, read func(context.Context) (crew.Reading, error), plan Plan) ([]Sample,
	error,
) {
	var samples []Sample
	begin := time.Now()
	for last := false; !last; {
		var rested bool
		if plan.For == 0 {
			if len(plan.Marks) == 0 || pods.Gone() >= plan.Marks[len(plan.Marks)-1] {
				return samples, nil
			}
			if err := pods.Run(ctx, plan.step(pods.Gone())); err != nil {
				return samples, err
			}
			rested = slices.Contains(plan.Marks, pods.Gone())
		} else {
			if err := pods.RunFor(ctx, plan.Pause); err != nil {
				return samples, err
			}
			passed := time.Since(begin)
			last = passed+plan.Settle+plan.Pause/2 >= plan.For
			rested = last || passed >= plan.For/2 && len(rests(samples)) == 0
		}
		pause := plan.Settle
		if rested {
			pause = max(plan.Settle, plan.Rest)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return samples, fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		reading, err := read(ctx)
		if err != nil {
			return samples, fmt.Errorf("after %d pods: %w", pods.Gone(), err)
		}
		samples = append(samples, Sample{Pods: pods.Gone(), Rested: rested, Reading: reading})
		plan.Told(samples[len(samples)-1])
	}
	return samples, nil
}

// rests are the samples after the long rest.
func rests(samples []Sample) []Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !s.Rested })
}

// step is how many pods come and go until the next sample.
func (p Plan) step(gone int) int {
	for _, mark := range p.Marks {
		if mark > gone {
			return min(p.Every, mark-gone)
		}
	}
	return p.Every
}
