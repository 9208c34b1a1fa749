package pause

import (
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	for failures, want := range map[int]string{0: "2s", 1: "2s", 2: "4s", 3: "8s", 4: "10s", 5: "10s", 1 << 40: "10s"} {
		if got := After(failures, 2*time.Second, 10*time.Second); got.String() != want {
			t.Errorf("%d failures: %v, want %s", failures, got, want)
		}
	}
	if got := After(3, 10*time.Second, time.Second); got != time.Second {
		t.Errorf("the first is longer than the last: %v", got)
	}
}
