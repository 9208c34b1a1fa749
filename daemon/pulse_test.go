package daemon

import (
	"context"
	"testing"
	"testing/synctest"
)

// serve runs what it receives until ctx ends.
func serve(ctx context.Context, loop <-chan func()) {
	for {
		select {
		case f := <-loop:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// A daemon with several loops is silent while one of them hangs.
func TestEachLoopIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		works, hangs := make(chan func()), make(chan func())
		go serve(ctx, works)
		for i, c := range []struct {
			loops []chan<- func()
			want  bool
		}{
			{nil, true},
			{[]chan<- func(){works}, true},
			{[]chan<- func(){works, works}, true},
			{[]chan<- func(){works, hangs}, false},
			{[]chan<- func(){hangs, works}, false},
		} {
			p := &Pulse{}
			p.Of(ctx, c.loops...)
			if got := p.beats(t.Context()); got != c.want {
				t.Errorf("%d: it beats: %v", i, got)
			}
		}
		cancel()
	})
}

// Loops may be named one after the other, as those of parts that begin later. Each counts until its end, which is no
// hang.
func TestALoopIsAskedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		works, hangs := make(chan func()), make(chan func())
		ctx, cancel := context.WithCancel(t.Context())
		go serve(ctx, works)
		p := &Pulse{}
		part, end := context.WithCancel(ctx)
		p.Of(part, hangs)
		p.Of(ctx, works)
		if p.beats(t.Context()) {
			t.Error("it beats although the loop hangs that was named first")
		}
		end()
		if !p.beats(t.Context()) {
			t.Error("a loop that has ended silences the daemon")
		}
		cancel()
		if !p.beats(t.Context()) {
			t.Error("loops that have ended silence the daemon")
		}
	})
}
