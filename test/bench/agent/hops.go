package agent

import (
	"context"
	"errors"

	"kubelot.dev/test/bench/hop"
	"kubelot.dev/test/bench/measure"
)

// Hops measures the bus of an agent that has one: idle with n pods, and while as many come and go.
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
	idle, err := b.hopsWhile(ctx, func(ctx context.Context) error { return sleep(ctx, b.IdleFor) })
	if err != nil {
		return nil, err
	}
	churned, err := b.hopsWhile(ctx, func(ctx context.Context) error { return b.churn(ctx, "hopchurn", n) })
	if err != nil {
		return nil, err
	}
	f := measure.Figures{}
	f.Time("hop.idle", idle, "p50", "p99", "max")
	f.Time("hop.churn", churned, "p50", "p99", "max")
	_, err = b.stopAll(ctx, names)
	return f, err
}

// hopsWhile is how long the hops took while do ran.
func (b *Bench) hopsWhile(ctx context.Context, do func(context.Context) error) (measure.Sample, error) {
	hopping, stop := context.WithCancel(ctx)
	defer stop()
	type outcome struct {
		sample measure.Sample
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		sample, err := hop.Until(hopping, b.RunDir)
		done <- outcome{sample, err}
	}()
	err := do(ctx)
	stop()
	out := <-done
	return out.sample, errors.Join(err, out.err)
}
