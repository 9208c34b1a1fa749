package bus

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// picky is a transport that refuses some subjects, as a bus whose store is full does.
type picky struct {
	Transport
	mu      sync.Mutex
	refuse  map[string]bool // "*" refuses all
	tries   map[string]int
	taken   []string
	removed []string
}

func (p *picky) Publish(_ context.Context, m Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries[m.Subject]++
	switch {
	case m.Tombstone():
		p.removed = append(p.removed, m.Subject)
	case p.refuse[m.Subject] || p.refuse["*"]:
		return errors.New("insufficient resources")
	default:
		p.taken = append(p.taken, m.Subject)
	}
	return nil
}

func (p *picky) Connects(context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	return c
}

func (p *picky) WatchState(context.Context, []string) <-chan Delivery {
	c := make(chan Delivery, 1)
	c <- Delivery{Synced: true}
	return c
}

func (p *picky) Close() {}

// during has publishing call f each time before it answers.
type during struct {
	*picky
	f func()
}

func (d during) Publish(ctx context.Context, m Message) error {
	d.f()
	return d.picky.Publish(ctx, m)
}

func pickyWriter(refuse ...string) (*picky, *Conn, *Writer[int]) {
	p := &picky{refuse: map[string]bool{}, tries: map[string]int{}}
	for _, subject := range refuse {
		p.refuse[subject] = true
	}
	c := NewConn(p, "test", slog.New(slog.DiscardHandler))
	return p, c, NewState[int](Spec{Name: "thing", Keys: "<id>"}).Writer(c)
}

func set(t *testing.T, w *Writer[int], key string, n int) {
	t.Helper()
	if err := w.Set(key, n); err != nil {
		t.Fatal(err)
	}
}

func TestARefusedKeyIsTriedEverMoreSlowlyAndHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c, w := pickyWriter("thing.big")
		defer c.Close()
		late := 0
		w.OnLate(func() { late++ })
		set(t, w, "big", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := p.tries["thing.big"]; n < 12 || n > 24 {
			t.Errorf("%d tries in a minute, want about one each 5 s after the first", n)
		}
		for i := range 50 {
			set(t, w, "big", 2+i) // a new value is no reason to try sooner
			set(t, w, "small", i)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if len(p.taken) != 50 {
			t.Errorf("%d values of another key were taken in the time of 50", len(p.taken))
		}
		if n := p.tries["thing.big"]; n > 25 {
			t.Errorf("%d tries: each new value was tried", n)
		}
		p.mu.Lock()
		clear(p.refuse)
		p.mu.Unlock()
		time.Sleep(8 * time.Second)
		if err := w.Flush(t.Context()); err != nil || p.taken[len(p.taken)-1] != "thing.big" {
			t.Errorf("the value isn't sent after the bus takes it again: %v, %v", p.taken[len(p.taken)-1], err)
		}
		synctest.Wait()
		if late != 1 {
			t.Errorf("%d values were said to be late, want one", late)
		}
	})
}

func TestManyRefusedKeysHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 200
		var refused []string
		for i := range keys {
			refused = append(refused, "thing.big"+strconv.Itoa(i))
		}
		p, c, w := pickyWriter(refused...)
		defer c.Close()
		var log strings.Builder
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		for i := range keys {
			set(t, w, "big"+strconv.Itoa(i), i)
		}
		set(t, w, "first", 1)
		synctest.Wait()
		if len(p.taken) != 1 {
			t.Errorf("taken: %v; the keys that are refused hold up the one behind them", p.taken)
		}
		time.Sleep(time.Minute)
		for i := range 50 {
			set(t, w, "small", i)
			synctest.Wait()
			if len(p.taken) != i+2 {
				t.Fatalf("value %d waits for keys that are refused", i)
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines were logged, want one that the bus refuses messages", n)
		}
	})
}

func TestATombstoneOfARefusedKeyGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c, w := pickyWriter("thing.big")
		defer c.Close()
		set(t, w, "big", 1)
		time.Sleep(time.Minute)
		if err := w.Delete("big"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(p.removed) != 1 {
			t.Errorf("removed: %v", p.removed)
		}
	})
}

func TestATombstoneDoesNotWaitForTheValueThatIsBeingRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &picky{refuse: map[string]bool{"*": true}, tries: map[string]int{}}
		tries, removed := 0, make(chan error, 1)
		var w *Writer[int]
		c := NewConn(during{p, func() {
			if tries++; tries == 20 {
				removed <- w.Delete("big")
			}
		}}, "test", slog.New(slog.DiscardHandler))
		defer c.Close()
		w = NewState[int](Spec{Name: "thing", Keys: "<id>"}).Writer(c)
		set(t, w, "big", 1)
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(p.removed) != 1 {
			t.Errorf("removed: %v", p.removed)
		}
	})
}

func TestAFullBusIsNotAskedForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c, w := pickyWriter("*")
		defer c.Close()
		for i := range 1000 {
			set(t, w, string(rune('a'+i%26))+string(rune('a'+i/26)), i)
		}
		time.Sleep(time.Minute)
		tries := -1000 // without the first of each key
		p.mu.Lock()
		for _, n := range p.tries {
			tries += n
		}
		clear(p.refuse)
		p.mu.Unlock()
		if tries < 200 || tries > 320 {
			t.Errorf("%d tries in a minute, want five a second", tries)
		}
		if err := w.Flush(t.Context()); err != nil || len(p.taken) != 1000 {
			t.Errorf("%d of 1000 values were taken, %v", len(p.taken), err)
		}
	})
}
