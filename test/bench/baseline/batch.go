package baseline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"kubelot.dev/test/bench/measure"
)

// degrees of parallelism that Batches tries.
var degrees = []int{2, 3, 4, 6, 8}

// Result is what the bare calls took.
type Result struct {
	Create, Delete measure.Sample // one pod at a time
	Starts, Stops  measure.Batch  // at the best parallelism of those tried
	Calls          map[string]time.Duration
}

// Figures are the result under the keys that the agents' results have, and each call's median, with n pods in the
// batch.
func (r Result) Figures(n int) measure.Figures {
	f := measure.Figures{}
	f.Time("latency.create", r.Create, "p50", "p95")
	f.Time("latency.delete", r.Delete, "p50", "p95")
	f.Time(fmt.Sprintf("burst.%d.create", n), r.Starts.Times, "last", "p50")
	f.Time(fmt.Sprintf("burst.%d.delete", n), r.Stops.Times, "last", "p50")
	for call, median := range r.Calls {
		f["call."+call] = median.Seconds()
	}
	return f
}

// Measure dials and measures single pods, and pods at once unless there are none.
func Measure(ctx context.Context, socket string, opts Options, repeat, pods int) (Result, error) {
	c, err := Dial(socket, opts)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	result, err := c.Singles(ctx, repeat)
	if err != nil || pods == 0 {
		return result, err
	}
	batches, err := c.Batches(ctx, pods)
	result.Starts, result.Stops = batches.Starts, batches.Stops
	return result, err
}

// Singles measures pods one at a time.
func (c *Client) Singles(ctx context.Context, repeat int) (Result, error) {
	var result Result
	for i := range repeat {
		created, deleted, err := c.single(ctx, fmt.Sprintf("single-%d", i))
		if err != nil {
			return result, err
		}
		result.Create = append(result.Create, created)
		result.Delete = append(result.Delete, deleted)
	}
	// The medians of the calls are those of a pod alone, before others disturb.
	result.Calls = map[string]time.Duration{}
	for call, sample := range maps.All(c.calls) {
		result.Calls[call] = sample.Median()
	}
	return result, nil
}

// Batches measures pods at once, at the best parallelism for starting, and for stopping, of those it tries.
func (c *Client) Batches(ctx context.Context, pods int) (Result, error) {
	var result Result
	for _, parallel := range degrees {
		starts, stops, err := c.batch(ctx, pods, parallel)
		if err != nil {
			return result, err
		}
		result.Starts = better(result.Starts, starts)
		result.Stops = better(result.Stops, stops)
	}
	return result, nil
}

// better is the batch that was done earlier.
func better(a, b measure.Batch) measure.Batch {
	if len(a.Times) == 0 || b.Times.Max() < a.Times.Max() {
		return b
	}
	return a
}

func (c *Client) single(ctx context.Context, name string) (created, deleted time.Duration, err error) {
	begin := time.Now()
	p, err := c.Start(ctx, name)
	created = time.Since(begin)
	if err != nil {
		return 0, 0, errors.Join(err, c.discard(ctx, p))
	}
	time.Sleep(measure.Settle)
	begin = time.Now()
	err = c.Stop(context.WithoutCancel(ctx), p)
	return created, time.Since(begin), err
}

// discard removes what a failed start left.
func (c *Client) discard(ctx context.Context, p Pod) error {
	if p.sandbox == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return c.Stop(ctx, p)
}

// batch starts pods with the given parallelism, and stops them likewise.
func (c *Client) batch(ctx context.Context, n, parallel int) (starts, stops measure.Batch, err error) {
	pods := make([]Pod, n)
	starts, startErr := each(n, parallel, func(i int) (err error) {
		pods[i], err = c.Start(ctx, fmt.Sprintf("batch-%d-%d", parallel, i))
		return err
	})
	stops, stopErr := each(n, parallel, func(i int) error {
		if pods[i].sandbox == "" {
			return nil
		}
		// Also when ctx was cancelled meanwhile: the pods must go.
		return c.Stop(context.WithoutCancel(ctx), pods[i])
	})
	return starts, stops, errors.Join(startErr, stopErr)
}

// each does n things, so many at a time in their order, and notes when each
// was done since the beginning.
func each(n, parallel int, do func(i int) error) (measure.Batch, error) {
	batch := measure.Batch{Parallel: parallel, Times: make(measure.Sample, n)}
	errs := make([]error, n)
	next := make(chan int)
	begin := time.Now()
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := range next {
				errs[i] = do(i)
				batch.Times[i] = time.Since(begin)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return batch, errors.Join(errs...)
}
