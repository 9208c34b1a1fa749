// Package scale measures what a crew takes with so many pods, and fits a curve through it: what a node agent does for
// one pod must not depend on how many others there are.
//
// Reads: the crew's processes and files, by package crew. Writes, owns: nothing.
//
// Guarantees: CPU time and bytes are counted and not derived from clocks; the sizes are taken in turns, up in one
// round and down in the next, so that what drifts isn't taken for what grows with the size. A daemon that is started
// again ends the run: what its processes took is no figure.
package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kubelot.dev/test/bench/crew"
)

// Reader is crew.Crew.Read.
type Reader func(context.Context) (crew.Reading, error)

// Pods has pods come all at once, and go all at once. Run has n more come and go meanwhile, some at a time.
type Pods interface {
	Up(ctx context.Context, n int) error
	Run(ctx context.Context, n int) error
	Down(ctx context.Context) error
}

// Plan says what is measured.
type Plan struct {
	// Warm is how many pods come and go first: what a daemon does once in its life isn't the first size's.
	Warm   int
	Sizes  []int
	Rounds int
	// Settle is how long the crew rests after a start or a stop, which its CPU time and bytes include.
	Settle time.Duration
	// Idle is how long the crew is looked at with the pods running.
	Idle time.Duration
	// More is how many more pods come and go while the others run.
	More int
	Told func(Point)
}

// Used is what one process took.
type Used struct {
	StartCPU float64 `json:"startCPU"` // seconds, to start all pods
	IdleCPU  float64 `json:"idleCPU"`  // millicores, with all pods running
	MoreCPU  float64 `json:"moreCPU"`  // seconds, for the pods that came and went meanwhile, beyond the idle rate
	StopCPU  float64 `json:"stopCPU"`  // seconds, to stop all pods
	PSS      float64 `json:"pss"`      // bytes, with all pods running
	// The bytes of its read and write calls: those of the bus are what went over it in either direction, and its store.
	StartRead    float64 `json:"startRead"`
	StartWritten float64 `json:"startWritten"`
	IdleRead     float64 `json:"idleRead"` // per minute
	IdleWritten  float64 `json:"idleWritten"`
	MoreRead     float64 `json:"moreRead"` // beyond the idle rate, as MoreCPU
	MoreWritten  float64 `json:"moreWritten"`
	StopRead     float64 `json:"stopRead"`
	StopWritten  float64 `json:"stopWritten"`
}

// Point is one size of one round.
type Point struct {
	Pods  int             `json:"pods"`
	Round int             `json:"round"`
	By    map[string]Used `json:"by"`  // by process
	Run   float64         `json:"run"` // bytes of the run directory, which is memory too, with all pods running
	Store float64         `json:"store"`
	// Took is how long all pods took until the last was Ready, and until the last was gone, in seconds. The control
	// plane has a large part in both.
	Took [2]float64 `json:"took"`
}

// Run measures all sizes in turns.
func Run(ctx context.Context, pods Pods, read Reader, plan Plan) ([]Point, error) {
	read = steady(read)
	if _, err := read(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(pods.Up(ctx, plan.Warm), pods.Down(ctx)); err != nil {
		return nil, fmt.Errorf("warm up: %w", explained(ctx, err, read))
	}
	var points []Point
	for round := range plan.Rounds {
		sizes := slices.Sorted(slices.Values(plan.Sizes))
		if round%2 == 1 {
			slices.Reverse(sizes)
		}
		for _, size := range sizes {
			p, err := one(ctx, pods, read, plan, size)
			if err != nil {
				return points, fmt.Errorf("%d pods: %w", size, err)
			}
			p.Round = round
			points = append(points, p)
			plan.Told(p)
		}
	}
	return points, nil
}

// steady is a reader that fails where a daemon isn't the process that it was at the reading before.
func steady(read Reader) Reader {
	var before crew.Reading
	return func(ctx context.Context) (crew.Reading, error) {
		now, err := read(ctx)
		if err == nil {
			err = now.Restarted(before)
		}
		before = now
		return now, err
	}
}

// explained adds to what is wrong with pods which daemon was started again.
func explained(ctx context.Context, err error, read Reader) error {
	_, why := read(ctx)
	return errors.Join(err, why)
}

// one is one size, from its first pod to its last one's end.
func one(ctx context.Context, pods Pods, read Reader, plan Plan, size int) (Point, error) {
	p := Point{Pods: size, By: map[string]Used{}}
	// What a stage takes is the difference of two readings.
	stage := func(did func() error, rest time.Duration, took *float64) (before, after crew.Reading, err error) {
		if before, err = read(ctx); err != nil {
			return before, after, err
		}
		begin := time.Now()
		if err = did(); err != nil {
			return before, after, explained(ctx, err, read)
		}
		*took = time.Since(begin).Seconds()
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return before, after, fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		after, err = read(ctx)
		return before, after, err
	}
	before, after, err := stage(func() error { return pods.Up(ctx, size) }, plan.Settle, &p.Took[0])
	if err != nil {
		return p, fmt.Errorf("start: %w", err)
	}
	p.add(before, after, func(u *Used, cpu time.Duration, read, written float64) {
		u.StartCPU, u.StartRead, u.StartWritten = cpu.Seconds(), read, written
	})
	var none float64
	before, after, err = stage(func() error { return nil }, plan.Idle, &none)
	if err != nil {
		return p, err
	}
	span := after.Time.Sub(before.Time)
	p.add(before, after, func(u *Used, cpu time.Duration, read, written float64) {
		u.IdleCPU, u.IdleRead, u.IdleWritten = 1000*cpu.Seconds()/span.Seconds(), read/span.Minutes(), written/span.Minutes()
	})
	for _, process := range after.Processes {
		used := p.By[process.Name]
		used.PSS = float64(process.PSS)
		p.By[process.Name] = used
	}
	p.Run, p.Store = float64(after.Run.Bytes), float64(after.Store.Bytes)
	before, after, err = stage(func() error { return pods.Run(ctx, plan.More) }, plan.Settle, &none)
	if err != nil {
		return p, fmt.Errorf("%d more: %w", plan.More, err)
	}
	span = after.Time.Sub(before.Time)
	p.add(before, after, func(u *Used, cpu time.Duration, read, written float64) {
		u.MoreCPU = cpu.Seconds() - u.IdleCPU/1000*span.Seconds()
		u.MoreRead, u.MoreWritten = read-u.IdleRead*span.Minutes(), written-u.IdleWritten*span.Minutes()
	})
	before, after, err = stage(func() error { return pods.Down(ctx) }, plan.Settle, &p.Took[1])
	if err != nil {
		return p, fmt.Errorf("stop: %w", err)
	}
	p.add(before, after, func(u *Used, cpu time.Duration, read, written float64) {
		u.StopCPU, u.StopRead, u.StopWritten = cpu.Seconds(), read, written
	})
	return p, nil
}

// add puts what each process took between two readings where set says. One that came meanwhile is left out.
func (p *Point) add(before, after crew.Reading, set func(u *Used, cpu time.Duration, read, written float64)) {
	for _, now := range after.Processes {
		for _, then := range before.Processes {
			if then.PID == now.PID {
				used := p.By[now.Name]
				set(&used, now.CPU-then.CPU, float64(now.Read-then.Read), float64(now.Written-then.Written))
				p.By[now.Name] = used
			}
		}
	}
}
