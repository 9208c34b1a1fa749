package embed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
)

// ways are how clients connect: by the unix socket, or within the bus's process as in the compact layout.
var ways = map[string][]func(*liveBus){"socket": nil, "process": {inProcess}}

// One publish until its acknowledgement, with a message of 6 kB.
func BenchmarkPublishAck(b *testing.B) {
	for way, with := range ways {
		b.Run(way, func(b *testing.B) {
			live := startBus(b, with...)
			t := conn(b, live, "writer").Transport()
			m := bus.Message{Subject: "suite.thing.a", Data: []byte(`{"text":"` + strings.Repeat("x", 6000) + `"}`)}
			ctx := within(b)
			if err := t.Publish(ctx, m); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := t.Publish(ctx, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// From a writer's Set in one connection to the change at a reader's.
func BenchmarkSetToChange(b *testing.B) {
	for way, with := range ways {
		b.Run(way, func(b *testing.B) {
			live := startBus(b, with...)
			w := bussuite.Things.Writer(conn(b, live, "writer"))
			changes, err := bussuite.Things.Watch(within(b), conn(b, live, "reader"))
			if err != nil {
				b.Fatal(err)
			}
			for c := range changes {
				if c.Synced {
					break
				}
			}
			text := strings.Repeat("x", 6000)
			n := 0
			for b.Loop() {
				n++
				if err := w.Set("a", bussuite.Thing{N: n, Text: text}); err != nil {
					b.Fatal(err)
				}
				<-changes
			}
		})
	}
}

// 20,000 events of 6 kB, written one by one in order and read by one reader.
func Benchmark20000Messages(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		live := startBus(b)
		p := bussuite.News.Publisher(conn(b, live, "writer"))
		w := bussuite.Things.Writer(conn(b, live, "writer"))
		events := bussuite.News.Subscribe(within(b), conn(b, live, "reader"), bus.From{Since: time.Now().Add(-time.Hour)})
		text := strings.Repeat("x", 6000)
		if err := w.Set("warm", bussuite.Thing{}); err != nil {
			b.Fatal(err)
		}
		flush(b, w)
		b.StartTimer()
		for i := range 20000 {
			if i%4000 == 0 {
				if err := p.Flush(within(b)); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Publish(fmt.Sprintf("k%d", i%100), bussuite.Thing{N: i, Text: text}); err != nil {
				b.Fatal(err)
			}
		}
		for o := range events {
			if o.Value.N == 19999 {
				break
			}
		}
	}
}

// 20,000 messages of 6 kB from 16 goroutines, each with its acknowledgement.
func Benchmark20000Parallel(b *testing.B) {
	live := startBus(b)
	t := conn(b, live, "writer").Transport()
	data := []byte(`{"text":"` + strings.Repeat("x", 6000) + `"}`)
	ctx := within(b)
	for b.Loop() {
		var group errgroup.Group
		for g := range 16 {
			group.Go(func() error {
				for i := range 20000 / 16 {
					m := bus.Message{Subject: fmt.Sprintf("suite.thing.k%d-%d", g, i%10), Data: data}
					if err := t.Publish(ctx, m); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// A new reader's 300 retained values of 6 kB, as a daemon gets them when it starts.
func BenchmarkRetained(b *testing.B) {
	live := startBus(b)
	w := bussuite.Things.Writer(conn(b, live, "writer"))
	for i := range 300 {
		if err := w.Set(fmt.Sprintf("k%d", i), bussuite.Thing{N: i, Text: strings.Repeat("x", 6000)}); err != nil {
			b.Fatal(err)
		}
	}
	flush(b, w)
	reader := conn(b, live, "reader")
	for b.Loop() {
		values, err := bussuite.Things.Read(within(b), reader)
		if err != nil || len(values) != 300 {
			b.Fatalf("%d values, %v", len(values), err)
		}
	}
}
