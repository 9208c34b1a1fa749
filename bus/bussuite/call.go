package bussuite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"kubelot.dev/bus"
)

// serve answers Sum until the test ends, and signals when it is ready.
func serve(t *testing.T, f *fixture, handle func(context.Context, Thing) (Reply, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(f.ctx(t))
	c := f.conn(t, "writer")
	ended := make(chan error, 1)
	go func() { ended <- Sum.Serve(ctx, c, handle) }()
	t.Cleanup(func() {
		cancel()
		if err := next(t, ended); err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	awaitServer(t, f)
}

// awaitServer waits until a call reaches the server; the number -1 is meant for it.
func awaitServer(t *testing.T, f *fixture) {
	t.Helper()
	c := f.conn(t, "reader")
	deadline := time.Now().Add(patience)
	for {
		_, err := Sum.Do(f.ctx(t), c, Thing{N: -1})
		if !errors.Is(err, bus.ErrNoResponder) && !errors.Is(err, bus.ErrDisconnected) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server isn't reached: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func add(_ context.Context, in Thing) (Reply, error) {
	if in.N == 13 {
		return Reply{}, errors.New("13 brings bad luck: choose another number")
	}
	return Reply{Sum: in.N + 1}, nil
}

// kinds are the numbers that the suite's server answers with an error of a kind.
var kinds = map[int]error{
	101: bus.ErrNotFound, 102: bus.ErrRefused, 103: bus.ErrInvalid, 104: bus.ErrBusy, 105: bus.ErrUnavailable,
	13: bus.ErrRefused, // which has no kind
}

// testKinds has each kind of error cross the bus, with the text as it was.
func testKinds(t *testing.T, f *fixture) {
	serve(t, f, func(ctx context.Context, in Thing) (Reply, error) {
		if kind := kinds[in.N]; kind != nil && in.N != 13 {
			return Reply{}, fmt.Errorf("answer %d: %w", in.N, bus.WithKind(kind, errors.New("as it must be")))
		}
		return add(ctx, in)
	})
	c := f.conn(t, "reader")
	awaitConn(t, f, c)
	for n, want := range kinds {
		_, err := Sum.Do(f.ctx(t), c, Thing{N: n})
		for _, kind := range kinds {
			if errors.Is(err, kind) != errors.Is(want, kind) {
				t.Errorf("the error %q of kind %q counts as %q: %t", err, want, kind, errors.Is(err, kind))
			}
		}
		if text := fmt.Sprintf("answer %d: as it must be", n); n != 13 && !strings.HasSuffix(err.Error(), text) {
			t.Errorf("got %q, want the server's words %q and no more", err, text)
		}
	}
	reply, err := c.Transport().Request(f.ctx(t), bus.Message{Subject: Sum.Name(), Data: []byte("{")})
	must(t, err)
	if reply.Header[bus.HeaderErrorKind] != "invalid" {
		t.Errorf("a request that can't be decoded is answered with %v", reply.Header)
	}
}

// testOldServer has a server of an earlier release, which knows no kinds, and one of a later, which knows more.
func testOldServer(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx(t))
	ended := make(chan error, 1)
	server := f.conn(t, "writer")
	go func() {
		ended <- server.Transport().Serve(ctx, Sum.Name(), func(_ context.Context, m bus.Message) bus.Message {
			header := map[string]string{bus.HeaderError: "not today"}
			if strings.Contains(string(m.Data), "7") {
				header[bus.HeaderErrorKind] = "frozen"
			}
			return bus.Message{Header: header}
		})
	}()
	defer func() {
		cancel()
		must(t, next(t, ended))
	}()
	awaitServer(t, f)
	c := f.conn(t, "reader")
	awaitConn(t, f, c)
	for _, n := range []int{1, 7} {
		_, err := Sum.Do(f.ctx(t), c, Thing{N: n})
		wantErr(t, err, bus.ErrRefused)
		if !strings.HasSuffix(err.Error(), "not today") || errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("got %q, want the server's words", err)
		}
	}
}

func testCall(t *testing.T, f *fixture) {
	serve(t, f, add)
	c := f.conn(t, "reader")
	awaitConn(t, f, c)
	reply, err := Sum.Do(f.ctx(t), c, Thing{N: 41})
	must(t, err)
	if reply.Sum != 42 {
		t.Fatalf("got %d, want 42", reply.Sum)
	}
	_, err = Sum.Do(f.ctx(t), c, Thing{N: 13})
	if err == nil || !strings.Contains(err.Error(), "13 brings bad luck: choose another number") {
		t.Fatalf("got %v, want the server's words", err)
	}
	garbage, err := c.Transport().Request(f.ctx(t), bus.Message{Subject: Sum.Name(), Data: []byte("{")})
	must(t, err)
	if !strings.Contains(garbage.Header[bus.HeaderError], "decode the request") {
		t.Fatalf("got %v, want that the request can't be decoded", garbage.Header)
	}
}

// awaitConn waits until c is connected.
func awaitConn(t *testing.T, f *fixture, c *bus.Conn) {
	t.Helper()
	ctx, cancel := context.WithCancel(f.ctx(t))
	defer cancel()
	next(t, c.Transport().Connects(ctx))
}

func testNoResponder(t *testing.T, f *fixture) {
	c := f.conn(t, "reader")
	awaitConn(t, f, c)
	_, err := Nobody.Do(f.ctx(t), c, Thing{})
	wantErr(t, err, bus.ErrNoResponder)
	wantErr(t, err, bus.ErrUnavailable)
}

func testCallAway(t *testing.T, f *fixture) {
	c := f.conn(t, "reader")
	awaitConn(t, f, c)
	block := make(chan struct{})
	serve(t, f, func(ctx context.Context, in Thing) (Reply, error) {
		if in.N > 0 {
			<-block
		}
		return Reply{}, nil
	})
	failed := make(chan error, 1)
	go func() {
		_, err := Sum.Do(context.Background(), c, Thing{N: 1})
		failed <- err
	}()
	time.Sleep(50 * time.Millisecond)
	f.Stop(t)
	wantErr(t, next(t, failed), bus.ErrDisconnected)
	close(block)
	_, err := Sum.Do(f.ctx(t), c, Thing{})
	wantErr(t, err, bus.ErrDisconnected)
	f.Start(t, true)
	awaitServer(t, f)
}

func testCallsRestart(t *testing.T, f *fixture) {
	var together sync.WaitGroup
	together.Add(20)
	serve(t, f, func(ctx context.Context, in Thing) (Reply, error) {
		if in.N >= 0 && in.N < 20 { // all twenty are answered at the same time or never
			together.Done()
			together.Wait()
		}
		return Reply{Sum: in.N + 1}, nil
	})
	c := f.conn(t, "reader")
	awaitConn(t, f, c)
	results := make(chan error, 20)
	for i := range 20 {
		go func() {
			reply, err := Sum.Do(f.ctx(t), c, Thing{N: i})
			if err == nil && reply.Sum != i+1 {
				err = fmt.Errorf("got %d for %d", reply.Sum, i)
			}
			results <- err
		}()
	}
	for range 20 {
		must(t, next(t, results))
	}
	f.Stop(t)
	f.Start(t, true)
	awaitServer(t, f)
	awaitConn(t, f, c)
	reply, err := Sum.Do(f.ctx(t), c, Thing{N: 99})
	must(t, err)
	if reply.Sum != 100 {
		t.Fatalf("got %d, want 100", reply.Sum)
	}
}

func testClose(t *testing.T, f *fixture) {
	c := f.conn(t, "reader")
	ctx := f.ctx(t)
	changes := watch(t, ctx, Things, c)
	events := News.Subscribe(ctx, c, bus.From{})
	connects := c.Transport().Connects(ctx)
	writer := f.conn(t, "writer")
	served := make(chan error, 1)
	go func() { served <- Sum.Serve(ctx, writer, add) }()
	awaitServer(t, f)
	collect(t, changes)
	c.Close()
	writer.Close()
	must(t, next(t, served))
	for range changes {
	}
	for range events {
	}
	for range connects {
	}
	if err := c.Transport().Publish(ctx, bus.Message{Subject: "suite.own.reader"}); err == nil {
		t.Fatal("a closed connection published")
	}
	for range c.Transport().WatchState(ctx, []string{"suite.thing.*"}) {
	}
}
