package hop

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
)

// late takes its time with every message after the first ones.
type late struct {
	bus.Transport
	by    time.Duration
	after int
}

func (l *late) Publish(ctx context.Context, m bus.Message) error {
	if l.after--; l.after < 0 {
		time.Sleep(l.by)
	}
	return l.Transport.Publish(ctx, m)
}

func hops(t *testing.T, by time.Duration, lasting time.Duration) []time.Duration {
	t.Helper()
	b := bustest.New()
	log := slog.New(slog.DiscardHandler)
	writer, reader := b.Transport("podsync", log), b.Transport("cli", log)
	defer writer.Close()
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	sample, err := over(ctx, &late{Transport: writer, by: by, after: 5}, reader)
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

func TestHopsTakeWhatTheBusTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sample := hops(t, 0, time.Second)
		if len(sample) < 45 {
			t.Errorf("%d hops in a second, want one each 20 ms", len(sample))
		}
		for _, took := range sample {
			if took != 0 {
				t.Errorf("a hop over a bus in no time took %v", took)
			}
		}
	})
}

func TestAStalledBusShowsAsALongHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sample := hops(t, 300*time.Millisecond, time.Second)
		if last := sample[len(sample)-1]; last != 300*time.Millisecond {
			t.Errorf("the last hop took %v, want the 300 ms of the bus", last)
		}
		if len(sample) > 10 {
			t.Errorf("%d hops: the next was sent before the last one came", len(sample))
		}
	})
}
