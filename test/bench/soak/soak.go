// Package soak finds what a node keeps of pods that have gone: it fits a line through what the crew holds against
// the number of pods that came and went, and fails on growth per pod.
//
// Reads: the crew's processes and files, by package crew. Writes, owns: nothing.
//
// Guarantees: no limit on a size decides, only growth that is significant and larger than the measure's limit per
// pod; a run that is too short or too noisy to see such growth says so.
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
	// For is how long pods come and go; zero leaves it to Marks.
	For time.Duration
	// Marks are numbers of pods, in ascending order, at each of which a sample is taken; the last one ends the run.
	Marks []int
	// Every is the number of pods between samples, or with For the time is Pause.
	Every int
	Pause time.Duration
	// Settle is how long the crew rests before a sample. A daemon gives memory back when it has rested for 5 to 10 s.
	Settle time.Duration
	// Rest is how long it rests before a sample at a mark, if that is longer: until the bus has dropped its last
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
	for {
		if plan.For == 0 {
			if len(plan.Marks) == 0 || pods.Gone() >= plan.Marks[len(plan.Marks)-1] {
				return samples, nil
			}
			if err := pods.Run(ctx, plan.step(pods.Gone())); err != nil {
				return samples, err
			}
		} else {
			if time.Since(begin) >= plan.For {
				return samples, nil
			}
			if err := pods.RunFor(ctx, plan.Pause); err != nil {
				return samples, err
			}
		}
		select {
		case <-time.After(plan.pause(pods.Gone())):
		case <-ctx.Done():
			return samples, fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		reading, err := read(ctx)
		if err != nil {
			return samples, fmt.Errorf("after %d pods: %w", pods.Gone(), err)
		}
		samples = append(samples, Sample{Pods: pods.Gone(), Reading: reading})
		plan.Told(samples[len(samples)-1])
	}
}

// pause is how long the crew rests before the sample.
func (p Plan) pause(gone int) time.Duration {
	if p.For == 0 && slices.Contains(p.Marks, gone) {
		return max(p.Settle, p.Rest)
	}
	return p.Settle
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
