package bus

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// busy is a transport on which so many readings don't end, and the later ones find what is kept.
type busy struct {
	*picky
	connects chan struct{}
	endless  int
	kept     []string
}

func (b *busy) Connects(context.Context) <-chan struct{} { return b.connects }

func (b *busy) WatchState(ctx context.Context, _ []string) <-chan Delivery {
	c := make(chan Delivery, len(b.kept)+1)
	for _, subject := range b.kept {
		c <- Delivery{Message: Message{Subject: subject, Data: []byte("1"), Time: time.Now()}}
	}
	if b.endless--; b.endless >= 0 {
		context.AfterFunc(ctx, func() { close(c) })
		return c
	}
	c <- Delivery{Synced: true}
	return c
}

func busyWriter(endless int, kept ...string) (*busy, *Conn, *Writer[int]) {
	b := &busy{
		picky: &picky{refuse: map[string]bool{}, tries: map[string]int{}}, connects: make(chan struct{}, 1),
		endless: endless, kept: kept,
	}
	b.connects <- struct{}{}
	c := NewConn(b, "test", slog.New(slog.DiscardHandler))
	return b, c, NewState[int](Spec{Name: "thing", Keys: "<id>"}).Writer(c)
}

// A writer whose reading of what was left comes to a stop says what it has to say, and reads again until it knows what
// an earlier process has left. Then it keeps that, and takes back what a bus that was killed has found again.
func TestAWriterReadsUntilItKnowsWhatWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c, w := busyWriter(3, "thing.left")
		defer c.Close()
		set(t, w, "own", 1)
		time.Sleep(compareTimeout)
		synctest.Wait()
		if !slices.Equal(b.taken, []string{"thing.own"}) {
			t.Errorf("a writer that doesn't know what was left has said %v, want its own", b.taken)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		b.kept = append(b.kept, "thing.ghost")
		b.connects <- struct{}{}
		synctest.Wait()
		if !slices.Equal(b.removed, []string{"thing.ghost"}) || !slices.Contains(b.taken, "thing.left") {
			t.Errorf("after a kill of the bus the writer removes %v and says %v; want the ghost, and what was left",
				b.removed, b.taken)
		}
	})
}

// What a writer has removed before it could read what was left isn't taken for something that was left.
func TestWhatAWriterHasRemovedWasNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c, w := busyWriter(1)
		defer c.Close()
		set(t, w, "brief", 1)
		time.Sleep(compareTimeout)
		synctest.Wait()
		if err := w.Delete("brief"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.kept = []string{"thing.brief"}
		for range 2 {
			b.connects <- struct{}{} // the bus was killed, and has found the value again
			synctest.Wait()
		}
		if len(b.removed) < 3 || len(b.taken) != 1 {
			t.Errorf("the writer has removed %v and said %v; want the value once, and its removal each time",
				b.removed, b.taken)
		}
		if err := w.Flush(t.Context()); err != nil || len(w.values) > 0 {
			t.Errorf("the writer keeps %d values, %v", len(w.values), err)
		}
	})
}
