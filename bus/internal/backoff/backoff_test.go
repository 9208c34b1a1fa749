package backoff

import (
	"testing"
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
