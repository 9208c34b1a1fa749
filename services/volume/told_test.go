package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// A volume that is tried every two seconds for an hour leaves room for other Events of its pod.
func TestTheSameIsToldMoreAndMoreSeldom(t *testing.T) {
	events := told{}
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

// Two failures that take turns are told as seldom as each would be alone.
func TestFailuresThatTakeTurnsAreToldSeldom(t *testing.T) {
	events := told{}
	begin := time.Unix(0, 0)
	times := map[string]int{}
	for n := range 300 {
		what := []string{"no driver", "no Secret"}[n%2]
		if events.due(what, begin.Add(time.Duration(n)*2*time.Second)) {
			times[what]++
		}
	}
	for what, n := range times {
		if n < 5 || n > 15 {
			t.Errorf("%q was told %d times in ten minutes", what, n)
		}
	}
}

// Failures that say something else each time, such as the time of day, don't take the place of other Events.
func TestFailuresThatAreNeverTheSameAreToldSeldom(t *testing.T) {
	events := told{}
	begin, times := time.Unix(0, 0), 0
	for n := range 300 {
		if events.due(fmt.Sprint("the server said no at ", n), begin.Add(time.Duration(n)*2*time.Second)) {
			times++
		}
	}
	if times > 25 {
		t.Errorf("they were told %d times in ten minutes", times)
	}
}

// onItsWay are volumes that others never get done with.
type onItsWay struct {
	plugin.Plugin
	tries *atomic.Int32
}

func (o onItsWay) Mount(context.Context, plugin.Request) (plugin.Result, error) {
	o.tries.Add(1)
	return plugin.Result{}, &plugin.Failure{Reason: "FailedMount", What: "wait : ", Err: errors.New("no"), OnItsWay: true}
}

// A volume that others are at work for for too long is warned of as seldom as of any other failure, and looked at every
// two seconds all the same.
func TestAVolumeThatIsWaitedForIsWarnedOfMoreAndMoreSeldom(t *testing.T) {
	inWorld(t, func(w *world) {
		var tries atomic.Int32
		w.kinds = plugin.List{{
			Claims: func(v *corev1.Volume) bool { return v.Name == "disk" }, Plugin: onItsWay{tries: &tries},
		}}
		w.start()
		w.update(podSpec("u1", corev1.Volume{Name: "disk"}), topic.Syncing)
		warnings := func() int { return strings.Count(w.log.String(), "volume failed") }
		w.advance(waitsLong - time.Second)
		if warnings() > 0 || len(w.events.all()) > 0 {
			t.Errorf("warned too early: %s, Events %q", &w.log, w.events.all())
		}
		tries.Store(0)
		w.advance(10 * time.Minute)
		if got := tries.Load(); got < 299 || got > 301 {
			t.Errorf("it was looked at %d times in ten minutes", got)
		}
		if got := warnings(); got < 8 || got > 15 || got != len(w.events.all()) {
			t.Errorf("%d warnings and %d Events in ten minutes", got, len(w.events.all()))
		}
	})
}
