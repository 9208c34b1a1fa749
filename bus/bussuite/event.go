package bussuite

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"kubelot.dev/bus"
)

func publish(t *testing.T, p *bus.Publisher[Thing], from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		must(t, p.Publish(fmt.Sprintf("k%d", i%3), Thing{N: i}))
	}
}

// established waits until new events reach the reader: it publishes numbers below zero until one comes.
func established(t *testing.T, p *bus.Publisher[Thing], events <-chan bus.Occurrence[Thing]) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		publish(t, p, -1, 0)
		select {
		case o, open := <-events:
			if !open || o.Value.N >= 0 {
				t.Fatalf("got event %d (open: %t), want a new one", o.Value.N, open)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("no new event comes")
}

// expect reads events from..to in order, passing over doubled ones and those of established.
func expect(t *testing.T, events <-chan bus.Occurrence[Thing], from, to int) []bus.Occurrence[Thing] {
	t.Helper()
	var got []bus.Occurrence[Thing]
	for want := from; want < to; {
		o := next(t, events)
		switch {
		case o.Value.N < 0:
			o.Ack()
		case o.Value.N == want:
			got = append(got, o)
			want++
		case o.Value.N > want || o.Value.N < from:
			t.Fatalf("got event %d, want %d", o.Value.N, want)
		}
	}
	return got
}

func testEvents(t *testing.T, f *fixture) {
	p := News.Publisher(f.conn(t, "writer"))
	publish(t, p, 0, 500)
	flush(t, p)
	reader := f.conn(t, "reader")
	events := News.Subscribe(f.ctx(t), reader, bus.From{Since: time.Now().Add(-time.Hour)})
	got := expect(t, events, 0, 500)
	if got[7].Key != "k1" || got[7].At.IsZero() {
		t.Fatalf("got %+v, want the key k1 and a time", got[7])
	}
	publish(t, p, 500, 510)
	expect(t, events, 500, 510)
	since := News.Subscribe(f.ctx(t), reader, bus.From{Since: got[400].At})
	o := next(t, since)
	if o.Value.N == 0 || o.Value.N > 400 {
		t.Fatalf("got event %d first, want one of the time of 400", o.Value.N)
	}
}

func testEventsNew(t *testing.T, f *fixture) {
	p := News.Publisher(f.conn(t, "writer"))
	publish(t, p, 0, 10)
	flush(t, p)
	ctx, cancel := context.WithCancel(f.ctx(t))
	events := News.Subscribe(ctx, f.conn(t, "reader"), bus.From{})
	established(t, p, events)
	publish(t, p, 10, 20)
	expect(t, events, 10, 20)
	cancel()
	for range events { // the channel is closed when its context ends
	}
}

func testDurable(t *testing.T, f *fixture) {
	p := News.Publisher(f.conn(t, "writer"))
	publish(t, p, 0, 10)
	flush(t, p)
	from := bus.From{Durable: "recorder"}
	first := f.conn(t, "reader")
	events := News.Subscribe(f.ctx(t), first, from)
	got := expect(t, events, 0, 10)
	for _, i := range []int{0, 1, 2, 3, 5} { // 4 is left, so 5 comes again with it
		got[i].Ack()
	}
	first.Close()
	publish(t, p, 10, 12)
	flush(t, p)

	second := f.conn(t, "reader")
	events = News.Subscribe(f.ctx(t), second, from)
	for _, o := range expect(t, events, 4, 12) {
		o.Ack()
	}
	second.Close()
	third := f.conn(t, "reader")
	events = News.Subscribe(f.ctx(t), third, from)
	silent(t, events)
	publish(t, p, 12, 13)
	expect(t, events, 12, 13)
	other := News.Subscribe(f.ctx(t), third, bus.From{Durable: "other"})
	expect(t, other, 0, 13)
}

func testEventsRestart(t *testing.T, f *fixture) {
	p := News.Publisher(f.conn(t, "writer"))
	reader := f.conn(t, "reader")
	plain := News.Subscribe(f.ctx(t), reader, bus.From{})
	durable := News.Subscribe(f.ctx(t), reader, bus.From{Durable: "recorder"})
	established(t, p, plain)
	f.Stop(t)
	f.Start(t, true)
	publish(t, p, 0, 20)
	expect(t, plain, 0, 20)
	for _, o := range expect(t, durable, 0, 20)[:10] {
		o.Ack()
	}
	flush(t, p) // what isn't acknowledged is sent again
	f.Stop(t)
	publish(t, p, 20, 30)
	f.Start(t, true)
	expect(t, plain, 20, 30)
	expect(t, durable, 20, 30) // 10 to 19 are still with this reader
	flush(t, p)
	f.Stop(t)
	f.Start(t, false)
	publish(t, p, 30, 40)
	expect(t, plain, 30, 40)
	expect(t, durable, 30, 40)
}

func testEventsAway(t *testing.T, f *fixture) {
	p := News.Publisher(f.conn(t, "writer"))
	f.Stop(t)
	publish(t, p, 0, 5000)
	f.Start(t, true)
	flush(t, p)
	events := News.Subscribe(f.ctx(t), f.conn(t, "reader"), bus.From{Since: time.Now().Add(-time.Hour)})
	o := next(t, events)
	if o.Value.N < 903 { // one may have been on its way already, the oldest at the time the publisher came to run
		o = next(t, events)
	}
	if o.Value.N < 903 || o.Value.N > 904 {
		t.Fatalf("the first event is %d, want one of the last 4096", o.Value.N)
	}
	expect(t, events, o.Value.N+1, 5000)
	if f.log.count("WARN", "dropped") == 0 {
		t.Fatal("the dropped events were not logged")
	}
}

func testHistory(t *testing.T, f *fixture) {
	writer := f.conn(t, "writer")
	w, p := Things.Writer(writer), News.Publisher(writer)
	filters := []string{bus.Filter(Things), bus.Filter(News)}
	// The bus copies states into its history, so a value that is replaced at once may not be in it.
	live := f.conn(t, "reader").Transport().WatchEvents(f.ctx(t), filters[:1], bus.From{Since: time.Now().Add(-time.Hour)})
	if d := next(t, live); !d.Synced {
		t.Fatalf("got %s %s, want the mark that nothing is kept", d.Subject, d.Data)
	}
	for i := range 6 {
		set(t, w, "a", Thing{N: i})
		next(t, live)
		must(t, p.Publish("k", Thing{N: i}))
		flush(t, p)
	}
	must(t, w.Delete("a"))
	next(t, live)
	all := f.conn(t, "reader").Transport().WatchEvents(f.ctx(t), filters, bus.From{Since: time.Now().Add(-time.Hour)})
	for i := range 6 {
		for _, want := range []string{"suite.thing.a", "suite.news.k"} {
			d := next(t, all)
			if d.Subject != want || string(d.Data) != fmt.Sprintf(`{"n":%d}`, i) || d.Header[bus.HeaderDaemon] != "writer" {
				t.Fatalf("got %s %s, want %s number %d by the writer", d.Subject, d.Data, want, i)
			}
		}
	}
	if d := next(t, all); d.Subject != "suite.thing.a" || !d.Tombstone() {
		t.Fatalf("got %s %s, want the tombstone", d.Subject, d.Data)
	}
	if d := next(t, all); !d.Synced || d.Subject != "" {
		t.Fatalf("got %s %s, want the mark that the history is over", d.Subject, d.Data)
	}
	kept, err := News.Read(f.ctx(t), f.conn(t, "reader"))
	must(t, err)
	if want := []Thing{{N: 0}, {N: 1}, {N: 2}, {N: 3}, {N: 4}, {N: 5}}; !slices.Equal(kept, want) {
		t.Fatalf("the kept events are %+v, want %+v", kept, want)
	}
	set(t, w, "a", Thing{N: 50})
	if d := next(t, all); string(d.Data) != `{"n":50}` {
		t.Fatalf("got %s, want the live value", d.Data)
	}
}
