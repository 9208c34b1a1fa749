package embed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
)

// hopper sends messages through the bus from one connection to another.
type hopper struct {
	writer, reader  bus.Transport
	daemon, subject string // of the writer
	// state has the reader read a state and not an event.
	state bool
	every time.Duration
}

// while does something, sends messages meanwhile, each once the one before has come, and returns how long they took.
func (h hopper) while(t testing.TB, do func() error) hops {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type outcome struct {
		took hops
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		took, err := h.until(ctx)
		ended <- outcome{took, err}
	}()
	err := do()
	stop()
	out := <-ended
	if err := errors.Join(err, out.err); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out.took)
	return out.took
}

func (h hopper) until(ctx context.Context) (took hops, err error) {
	// The last message is awaited, also where ctx ends meanwhile.
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var arrived <-chan bus.Delivery
	if h.state {
		arrived = h.reader.WatchState(reading, []string{h.subject})
	} else {
		arrived = h.reader.WatchEvents(reading, []string{h.subject}, bus.From{})
	}
	if err := come(arrived, func(d bus.Delivery) bool { return d.Synced }); err != nil {
		return nil, err
	}
	text := filling(2000)
	for n := 0; ctx.Err() == nil; n++ {
		m := bus.Message{
			Subject: h.subject, Data: fmt.Appendf(nil, `{"n":%d,"text":%q}`, n, text),
			Header: map[string]string{bus.HeaderSchema: "1", bus.HeaderDaemon: h.daemon},
		}
		begin := time.Now()
		if err := h.writer.Publish(reading, m); err != nil {
			return took, err
		}
		if err := come(arrived, func(d bus.Delivery) bool { return bytes.Equal(d.Data, m.Data) }); err != nil {
			return took, err
		}
		took = append(took, time.Since(begin))
		time.Sleep(h.every)
	}
	return took, nil
}

// come waits for what is wanted.
func come(arrived <-chan bus.Delivery, wanted func(bus.Delivery) bool) error {
	late := time.After(time.Minute)
	for {
		select {
		case d := <-arrived:
			d.Ack()
			if wanted(d) {
				return nil
			}
		case <-late:
			return errors.New("a message has not come within a minute")
		}
	}
}

// hops are how long messages took, in ascending order.
type hops []time.Duration

func (h hops) String() string {
	if len(h) == 0 {
		return "no hops"
	}
	return fmt.Sprintf("%d hops, median %v, 99 %% %v, longest %v", len(h), h[len(h)/2].Round(time.Microsecond),
		h[len(h)*99/100].Round(time.Microsecond), h[len(h)-1].Round(time.Microsecond))
}

// longestHop is for a busy machine. A bus that swept old tombstones, with one purge per key, stalled its readers for
// ten seconds and more (docs/adr/0012).
const longestHop = 3 * time.Second

// Nobody waits for long while thousands of tombstones expire, their blocks are compacted, and the last one is given up.
// The best of three tries counts: a machine that stands still for seconds holds up a message too, but not each time.
func TestReadersDoNotWaitForTheBusToTidyUp(t *testing.T) {
	for try := 1; ; try++ {
		var expiry, giveUp hops
		t.Run(strconv.Itoa(try), func(t *testing.T) { expiry, giveUp = tidiesUp(t) })
		switch {
		case t.Failed():
			return
		case len(expiry) < 10 || len(giveUp) < 10:
			t.Fatalf("%d and %d messages say nothing", len(expiry), len(giveUp))
		case max(expiry[len(expiry)-1], giveUp[len(giveUp)-1]) <= longestHop:
			return
		case try == 3:
			t.Fatalf("while tombstones expire: %v; while the last block is given up: %v; want none longer than %v", expiry,
				giveUp, longestHop)
		}
	}
}

// tidiesUp is how long messages take while a bus tidies up: while tombstones expire, and while the last block is given
// up.
func tidiesUp(t *testing.T) (expiry, giveUp hops) {
	t.Helper()
	b := startBus(t, func(b *liveBus) {
		b.options.compactEvery, b.options.rollEvery = 100*time.Millisecond, 300*time.Millisecond
	})
	const keys = 6000
	leaving := conn(t, b, "writer")
	w := bussuite.Things.Writer(leaving)
	for i := range keys {
		if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: i, Text: filling(2000)}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, w)
	leaving.Close() // it would say again what it knows
	before := blockNames(t, b)
	h := hopper{
		writer: conn(t, b, "writer").Transport(), reader: conn(t, b, "reader").Transport(), daemon: "writer",
		subject: "suite.thing.hop", state: true, every: time.Millisecond,
	}
	expiry = h.while(t, func() error {
		b.expiring(t, keys) // all but the hopper's
		return nil
	})
	h.subject, h.state = "suite.news.hop", false // the last block is given up when the states are at rest
	giveUp = h.while(t, func() error {
		fillLastBlock(t, b)
		for deadline := time.Now().Add(time.Minute); stateBytes(t, b) > rollBytes; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("the states take %d bytes for one key", stateBytes(t, b))
			}
		}
		return nil
	})
	t.Logf("while tombstones expire: %v; while the last block is given up: %v", expiry, giveUp)
	if after := blockNames(t, b); after == before {
		t.Errorf("the blocks are still %s", after)
	}
	return expiry, giveUp
}

// fillLastBlock leaves one value in a block of 2 MiB and more.
func fillLastBlock(t *testing.T, b *liveBus) {
	t.Helper()
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	for i := range 250 {
		if err := w.Set("stays", bussuite.Thing{N: i, Text: filling(8 << 10)}); err != nil {
			t.Fatal(err)
		}
		flush(t, w)
	}
}

// How long a message takes at rest, while 2,000 pods come and go, while their tombstones expire and their blocks are
// compacted, and while the bus gives up the last block, for which it needs states at rest: then an event is sent.
func BenchmarkHopsOfPodsThatComeAndGo(b *testing.B) {
	for b.Loop() {
		l := startLife(b)
		rest := func(d time.Duration) func() error {
			return func() error { time.Sleep(d); return nil }
		}
		state := hopper{
			writer: l.writers["volume"], reader: l.writers["cli"], daemon: "volume", subject: "volume.state.hop", state: true,
			every: 20 * time.Millisecond,
		}
		event := state
		event.writer, event.daemon, event.subject, event.state = l.writers["podsync"], "podsync", "podsync.step.hop", false
		time.Sleep(12 * time.Second)
		for _, stage := range []struct {
			name string
			by   hopper
			do   func() error
		}{
			{"at rest, a state", state, rest(30 * time.Second)},
			{"at rest, an event", event, rest(30 * time.Second)},
			{"while 2,000 pods come and go, a state", state, func() error { return l.pods(0, 2000) }},
			{"in the minute after that, a state", state, rest(time.Minute)},
			{"in the minute after that, an event", event, rest(time.Minute)},
		} {
			b.Logf("%s: %v", stage.name, stage.by.while(b, stage.do))
		}
	}
}
