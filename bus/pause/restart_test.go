package pause

import (
	"strings"
	"testing"
	"time"
)

func TestBeforeRestart(t *testing.T) {
	pause := time.Duration(0)
	var got []string
	for range 9 {
		pause = BeforeRestart(pause, time.Second)
		got = append(got, pause.String())
	}
	if want := "100ms 200ms 400ms 800ms 1.6s 3.2s 6.4s 10s 10s"; strings.Join(got, " ") != want {
		t.Errorf("pauses %v, want %s", got, want)
	}
	if pause = BeforeRestart(10*time.Second, Steady); pause != firstRestart {
		t.Errorf("pause after a long run %v", pause)
	}
}
