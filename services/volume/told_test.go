package volume

import (
	"testing"
	"time"
)

// A volume that is tried every two seconds for an hour leaves room for other Events of its pod.
func TestTheSameIsToldMoreAndMoreSeldom(t *testing.T) {
	var events told
	begin := time.Unix(0, 0)
	times := map[time.Duration]int{}
	for after := time.Duration(0); after < time.Hour; after += 2 * time.Second {
		if events.due("no room here", begin.Add(after)) {
			times[after.Truncate(10*time.Minute)]++
		}
	}
	if first := times[0]; first < 7 || first > 15 {
		t.Errorf("%d Events in the first ten minutes", first)
	}
	if second := times[10*time.Minute]; second < 4 || second > 5 {
		t.Errorf("%d Events in the ten minutes after", second)
	}
	if !events.due("another failure", begin.Add(time.Hour)) {
		t.Error("another failure isn't told at once")
	}
}
