package bussuite

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus"
)

func testDenied(t *testing.T, f *fixture) {
	c := f.conn(t, "reader")
	// The fastest of some tries counts: the machine may be busy, and what waits for a time-out is never fast.
	fastest := patience
	for try := 0; try < 5 && fastest > 3*time.Second; try++ {
		started := time.Now()
		err := c.Transport().Publish(f.ctx(t), bus.Message{Subject: "suite.thing.a", Data: []byte("{}")})
		fastest = min(fastest, time.Since(started))
		wantErr(t, err, bus.ErrDenied)
	}
	if fastest > 3*time.Second {
		t.Fatal("the refusal came as late as a time-out")
	}
	w := Things.Writer(c)
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	if f.log.count("ERROR", "suite.thing.a", "not allowed") == 0 {
		t.Fatal("the refused value was not logged")
	}
	// Each daemon writes its own key of such a topic and no other.
	own := Own.Writer(c)
	set(t, own, "reader", Thing{N: 1})
	flush(t, own)
	err := c.Transport().Publish(f.ctx(t), bus.Message{Subject: "suite.own.writer", Data: []byte("{}")})
	wantErr(t, err, bus.ErrDenied)
	changes := watch(t, f.ctx(t), Own, c)
	if got := collect(t, changes); len(got) != 1 || got["reader"].N != 1 {
		t.Fatalf("got %v, want the reader's own value", got)
	}
}

func testDeniedRead(t *testing.T, f *fixture) {
	writer := f.conn(t, "writer")
	w := Secret.Writer(writer)
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	// The writer itself may read what it wrote, for its next life.
	changes := watch(t, f.ctx(t), Secret, writer)
	if got := collect(t, changes); len(got) != 1 {
		t.Fatalf("the writer reads %v, want its own value", got)
	}
	reader := f.conn(t, "reader")
	silent(t, watch(t, f.ctx(t), Secret, reader))
	silent(t, watch(t, f.ctx(t), Secret, reader, "a"))
	silent(t, reader.Transport().WatchState(f.ctx(t), []string{">"}))
	silent(t, reader.Transport().WatchState(f.ctx(t), []string{"suite.*.a"}))
	f.logged(t, "ERROR", "suite.secret", "not allowed")
}

func testWrongKey(t *testing.T, f *fixture) {
	log := slog.New(f.log)
	c := bus.NewConn(f.DialWrongKey(t, log), "writer", log)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	wantErr(t, c.Transport().Publish(ctx, bus.Message{Subject: "suite.thing.a", Data: []byte("{}")}), bus.ErrDisconnected)
	f.logged(t, "WARN", "key")
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	if got := collect(t, changes); len(got) != 0 {
		t.Fatalf("got %v, want nothing", got)
	}
}

func testTooLarge(t *testing.T, f *fixture) {
	c := f.conn(t, "writer")
	w := Things.Writer(c)
	set(t, w, "big", Thing{Text: strings.Repeat("x", bus.MaxPayload+1)})
	set(t, w, "small", Thing{N: 1})
	flush(t, w)
	if f.log.count("ERROR", "suite.thing.big", "larger") == 0 {
		t.Fatal("the oversized value was not logged")
	}
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	if got := collect(t, changes); len(got) != 1 || got["small"].N != 1 {
		t.Fatalf("got %d keys, want the small one", len(got))
	}
	set(t, w, "large", Thing{Text: strings.Repeat("x", 5<<20)})
	if c := next(t, changes); len(c.Value.Text) != 5<<20 {
		t.Fatalf("got %s with %d bytes, want all of large", c.Key, len(c.Value.Text))
	}
}

func testServeDenied(t *testing.T, f *fixture) {
	failed := make(chan error, 1)
	reader := f.conn(t, "reader")
	ctx := f.ctx(t)
	go func() {
		failed <- Sum.Serve(ctx, reader, func(context.Context, Thing) (Reply, error) { return Reply{}, nil })
	}()
	wantErr(t, next(t, failed), bus.ErrDenied)
	_, err := Sum.Do(ctx, f.conn(t, "writer"), Thing{})
	if !errors.Is(err, bus.ErrDenied) && !errors.Is(err, bus.ErrDisconnected) {
		t.Fatalf("got %v, want that the writer may not call", err)
	}
}
