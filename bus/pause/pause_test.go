package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestDoubling(t *testing.T) {
	const first, last = 50 * time.Millisecond, 5 * time.Second
	b := Doubling(first, last)
	want := first
	for range 1000 {
		if got := b.Step(); got < want*3/4 || got > want*5/4 {
			t.Fatalf("the pause is %v, want %v give or take a quarter", got, want)
		}
		want = min(2*want, last)
	}
}

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		For(ctx, time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for %v", took)
		}
		For(ctx, time.Hour)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the wait ended after %v, want with its context", took)
		}
	})
}
