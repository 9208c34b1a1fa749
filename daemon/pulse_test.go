package daemon

import (
	"context"
	"testing"
	"testing/synctest"
)

// A daemon with several loops is silent while one of them hangs.
func TestEachLoopIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		works, hangs := make(chan func()), make(chan func())
		go func() {
			for {
				select {
				case f := <-works:
					f()
				case <-ctx.Done():
					return
				}
			}
		}()
		p := &Pulse{}
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
			p.Of(ctx, c.loops...)
			if got := p.beats(t.Context()); got != c.want {
				t.Errorf("%d: it beats: %v", i, got)
			}
		}
		// The end of the loops is no hang.
		cancel()
		if !p.beats(t.Context()) {
			t.Error("loops that have ended silence the daemon")
		}
	})
}
