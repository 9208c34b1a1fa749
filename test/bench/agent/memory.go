package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/bench/crew"
	"kubelot.dev/test/bench/measure"
)

// batchSize is how many pods come and go at once.
const batchSize = 100

// readings of memory are taken so often, a share of the rest apart: 5 s where the rest is 30. The one in the middle
// counts, since heaps grow between collections.
const (
	readings     = 3
	readingShare = 6
)

// Fresh is what the agent takes before it has seen a pod.
func (b *Bench) Fresh(ctx context.Context) (measure.Figures, error) {
	b.Say("memory before any pod")
	held, err := b.rested(ctx)
	if err != nil {
		return nil, err
	}
	return held.fresh(), nil
}

// fresh are the figures of a reading before any pod.
func (h Held) fresh() measure.Figures {
	f := measure.Figures{"fresh.memory": float64(h.Total())}
	var daemons []float64
	for _, p := range h.Processes {
		f["fresh.private."+p.Name] = float64(p.Private)
		if p.Name != supervisor {
			daemons = append(daemons, float64(p.Private))
		}
	}
	slices.Sort(daemons)
	if n := len(daemons); n > 0 {
		f["fresh.private.median"], f["fresh.private.largest"] = daemons[n/2], daemons[n-1]
	}
	return f
}

// longRest is how many rests more an agent has after churn, before what it holds with idle pods is read: what the last
// starts and ends have left for a minute is no part of that, and is read before.
const longRest = 3

// Churned is what the agent takes with n idle pods after others have come and gone.
func (b *Bench) Churned(ctx context.Context, others, n int) (measure.Figures, Held, error) {
	b.Say("%d pods come and go", others)
	if err := b.churn(ctx, "churn", others); err != nil {
		return nil, Held{}, err
	}
	b.Say("memory with %d pods", n)
	names, _, err := b.startAll(ctx, "churned", n, nil)
	if err != nil {
		return nil, Held{}, err
	}
	soon, held, err := b.restedLong(ctx)
	if err != nil {
		return nil, Held{}, err
	}
	_, err = b.stopAll(ctx, names)
	return held.churned(soon), held, err
}

// ChurnRest is how long an agent rests after the last start before the memory that it holds after churn is read.
func ChurnRest(rest time.Duration, brief bool) time.Duration {
	if brief {
		return 2 * rest
	}
	return rest + readings*(rest/readingShare) + longRest*rest + rest
}

// restedLong reads the memory of the agent at rest, and after the long rest. The brief form reads it once, so soon that
// it finds more than the full one.
func (b *Bench) restedLong(ctx context.Context) (soon, held Held, err error) {
	if b.Brief {
		if err := sleep(ctx, b.RestFor); err != nil {
			return soon, held, err
		}
		held, err = b.rested(ctx)
		return held, held, err
	}
	if soon, err = b.rested(ctx); err != nil {
		return soon, held, err
	}
	if err := sleep(ctx, longRest*b.RestFor); err != nil {
		return soon, held, err
	}
	held, err = b.rested(ctx)
	return soon, held, err
}

// churned are the figures of a reading after churn. The bus has its private memory and its store, as in the soak test.
func (h Held) churned(soon Held) measure.Figures {
	f := measure.Figures{
		"memory.soon":  float64(soon.Total()),
		"memory.total": float64(h.Total()), "memory.pss": float64(h.pss()), "memory.store": float64(h.Store),
	}
	for _, p := range h.Processes {
		switch p.Name {
		case "bus":
			f["memory.bus"] = float64(p.Private + h.BusStore)
		case supervisor:
			f["memory.units"] = float64(h.Total() - p.PSS)
		}
	}
	return f
}

// churn creates and deletes pods, a hundred at once. They are on the host's network: the agent has the same work
// with them, and the CNI plugins, which take half of the time, have none.
func (b *Bench) churn(ctx context.Context, prefix string, n int) error {
	begin := time.Now()
	for done := 0; done < n; done += batchSize {
		names, _, err := b.startAll(ctx, fmt.Sprintf("%s-%d", prefix, done), min(batchSize, n-done), func(pod *corev1.Pod) {
			pod.Spec.HostNetwork = true
			// One that still misses its signal, see measure.Settle, mustn't hold up the rest for long.
			pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
		})
		if err != nil {
			return err
		}
		if err := sleep(ctx, measure.Settle); err != nil {
			return err
		}
		if _, err := b.stopAll(ctx, names); err != nil {
			return err
		}
		if gone := done + len(names); gone%500 == 0 {
			b.Say("%d have come and gone in %.0f s", gone, time.Since(begin).Seconds())
		}
	}
	return nil
}

// supervisor stands for systemd where the crew runs without it.
const supervisor = "up"

// Held is the memory that an agent holds, in bytes.
type Held struct {
	Processes []measure.Process `json:"processes"`
	Store     int64             `json:"store"`    // the content of the run directory
	BusStore  int64             `json:"busStore"` // the part of it that is the bus's store
}

func (h Held) pss() (sum int64) {
	for _, p := range h.Processes {
		sum += p.PSS
	}
	return sum
}

// Total is all of it.
func (h Held) Total() int64 { return h.pss() + h.Store }

// rested reads the memory of the agent at rest.
func (b *Bench) rested(ctx context.Context) (Held, error) {
	if err := sleep(ctx, b.RestFor); err != nil {
		return Held{}, err
	}
	var all []Held
	for range readings {
		if err := sleep(ctx, b.RestFor/readingShare); err != nil {
			return Held{}, err
		}
		held, err := b.held()
		if err != nil {
			return Held{}, err
		}
		all = append(all, held)
	}
	return Middle(all), nil
}

// Middle is the reading with as many larger as smaller ones.
func Middle(all []Held) Held {
	slices.SortFunc(all, func(a, b Held) int { return int(a.Total() - b.Total()) })
	return all[len(all)/2]
}

func (b *Bench) held() (held Held, err error) {
	if b.RunDir != "" {
		if held.Store, err = measure.Store(b.RunDir); err != nil {
			return held, err
		}
		files, err := measure.Count(crew.BusStore(b.RunDir))
		if err != nil {
			return held, err
		}
		held.BusStore = files.Bytes
	}
	held.Processes, err = measure.Processes(b.Agent.PID())
	return held, err
}
