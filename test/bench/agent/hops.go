package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/test/bench/hop"
	"kubelot.dev/test/bench/measure"
)

// hopsAfter is how long the bus is looked at after the churn, twice. At first states are sent, while the tombstones of
// the pods expire, 30 to 40 s after these have gone, and blocks are compacted. Then events are sent alone: when the
// states are at rest, the bus gives up their last block.
const hopsAfter = time.Minute

// Hops measures the bus of an agent that has one: idle with n pods, while as many come and go, and when they have gone.
func (b *Bench) Hops(ctx context.Context, n int) (measure.Figures, error) {
	if b.RunDir == "" {
		return nil, nil
	}
	b.Say("bus hops with %d pods", n)
	names, _, err := b.startAll(ctx, "hop", n, nil)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, b.IdleFor/3); err != nil {
		return nil, err
	}
	idle := func(ctx context.Context) error { return sleep(ctx, b.IdleFor) }
	churn := func(ctx context.Context) error { return b.churn(ctx, "hopchurn", n) }
	churnStates := func(ctx context.Context) error { return b.churn(ctx, "hopstates", n) }
	after := func(ctx context.Context) error { return sleep(ctx, hopsAfter) }
	f := measure.Figures{}
	for _, part := range []struct {
		key string
		by  hop.Path
		do  func(context.Context) error
	}{
		{"hop.idle", hop.Event, idle},
		{"hop.churn", hop.Event, churn},
		{"hop.state.idle", hop.State, idle},
		{"hop.state.churn", hop.State, churnStates},
		{"hop.state.after", hop.State, after},
		{"hop.after", hop.Event, after},
	} {
		sample, err := b.hopsWhile(ctx, part.by, part.do)
		if err != nil {
			return f, fmt.Errorf("%s: %w", part.key, err)
		}
		f.Time(part.key, sample, "p50", "p99", "max")
	}
	_, err = b.stopAll(ctx, names)
	return f, err
}

// hopsWhile is how long the hops took while do ran.
func (b *Bench) hopsWhile(
	ctx context.Context, by hop.Path, do func(context.Context) error,
) (measure.Sample, error) {
	hopping, stop := context.WithCancel(ctx)
	defer stop()
	type outcome struct {
		sample measure.Sample
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		sample, err := hop.Until(hopping, b.RunDir, by)
		done <- outcome{sample, err}
	}()
	err := do(ctx)
	stop()
	out := <-done
	return out.sample, errors.Join(err, out.err)
}
