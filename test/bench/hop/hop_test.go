package hop

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
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

func hops(t *testing.T, b *bustest.Bus, path Path, by time.Duration) []time.Duration {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	writer, reader := b.Transport(path.writer, log), b.Transport("cli", log)
	defer writer.Close()
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	sample, err := path.over(ctx, &late{Transport: writer, by: by, after: 5}, reader)
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

// both runs a test on both ways. A second measurement on the same bus isn't disturbed by what the first has left.
func both(t *testing.T, by time.Duration, check func(t *testing.T, sample []time.Duration)) {
	t.Helper()
	for name, path := range map[string]Path{"event": Event, "state": State} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bustest.New()
				for range 2 {
					check(t, hops(t, b, path, by))
				}
			})
		})
	}
}

func TestHopsTakeWhatTheBusTakes(t *testing.T) {
	both(t, 0, func(t *testing.T, sample []time.Duration) {
		t.Helper()
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
	both(t, 300*time.Millisecond, func(t *testing.T, sample []time.Duration) {
		t.Helper()
		if last := sample[len(sample)-1]; last != 300*time.Millisecond {
			t.Errorf("the last hop took %v, want the 300 ms of the bus", last)
		}
		if len(sample) > 10 {
			t.Errorf("%d hops: the next was sent before the last one came", len(sample))
		}
	})
}

// The state's readers know nothing of the measurement when it is over.
func TestNothingIsLeftOfAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		hops(t, b, State, 0)
		conn := b.Conn("podsync")
		defer conn.Close()
		left, err := topic.VolumeState.Read(t.Context(), conn)
		if err != nil || len(left) > 0 {
			t.Errorf("%v, %v; want nothing", left, err)
		}
	})
}

// What its daemons' readers refuse would be a line in a log for each message.
func TestAMessageIsOneOfItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		conn := b.Conn("podsync")
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes, err := topic.VolumeState.Watch(ctx, conn)
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan bus.Change[topic.PodVolumes], 1)
		go func() {
			for c := range changes {
				if !c.Synced && len(first) == 0 {
					first <- c
				}
			}
		}()
		hops(t, b, State, 0)
		if c := <-first; c.Deleted || c.Key != uid || c.Value.UID != uid {
			t.Errorf("%+v", c)
		}
	})
}
