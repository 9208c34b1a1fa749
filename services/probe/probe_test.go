package probe

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/probe/internal/check"
)

// Restarts of the daemon, with the bus's state there or lost, change no verdict and repeat no startup probe.
func TestRestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.bus.Restrict(Contract, bus.Contract{Daemon: "podsync", Writes: []bus.Topic{topic.PodUpdate}},
			bus.Contract{Daemon: "pleg", Writes: []bus.Topic{topic.PLEGEvent}})
		b.pod("u1", 10)
		stop := b.start()
		b.wantVerdicts(bothGood)
		if got := b.taken(); len(got) != 2 {
			t.Errorf("runs %v, want startup and readiness", got)
		}
		for range 5 {
			stop()
			b.tell(func(string) (check.Result, error) { return check.Result{}, errors.New("nothing may be decided now") })
			stop = b.start()
			b.after(100 * time.Millisecond)
			b.wantVerdicts(bothGood)
		}
		if got := b.taken(); len(got) > 1 {
			t.Errorf("within a period after the restarts, these ran: %v", got)
		}
		b.bus.LoseState()
		b.wantVerdicts(bothGood)
		b.bus.Disconnect()
		b.tell(func(string) (check.Result, error) { return check.Result{}, nil })
		b.after(20 * time.Second)
		b.bus.Reconnect()
		b.wantVerdicts("u1.app.readiness c-u1 false, u1.app.startup c-u1 true")
		stop()
	})
}

// A new container starts from the beginning, and a pod that goes leaves nothing: no verdict, no metric.
func TestContainersAndPodsGo(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start()
		defer stop()
		b.pod("u1", 1)
		b.wantVerdicts(bothGood)
		b.tell(func(id string) (check.Result, error) { return check.Result{Success: id == "c-u1", Output: "ill"}, nil })
		b.running("u1", "c2", "c-u1")
		b.wantVerdicts("u1.app.startup c2 false")
		if n := b.series(); n != 5 {
			t.Errorf("%d series; want three counters and two histograms", n)
		}
		if len(b.events) != 1 || b.events[0].Message != "Startup probe failed: ill" ||
			b.events[0].FieldPath != "spec.containers{app}" || b.events[0].Name != "web-u1" || b.events[0].UID != "u1" {
			t.Errorf("events %+v", b.events)
		}
		if err := errors.Join(b.pods.Delete("u1"), b.seen.Delete("u1")); err != nil {
			t.Fatal(err)
		}
		b.wantVerdicts("")
		if n := b.series(); n != 0 {
			t.Errorf("%d series are left", n)
		}
	})
}

// A hundred pods with probes each second don't run them together, be they started together or taken over.
func TestSpread(t *testing.T) {
	inBubble(t, func(b *bed) {
		for i := range 100 {
			b.pod(fmt.Sprintf("u%d", i), 1)
		}
		b.takes = time.Millisecond
		b.start()()
		b.most = 0
		stop := b.start()
		defer stop()
		b.after(3 * time.Second)
		if n := b.mostAtOnce(); n > easeFactor*runtime.NumCPU() {
			t.Errorf("%d first runs at once", n)
		}
		b.taken()
		b.after(10 * time.Second)
		counts := map[string]int{}
		for _, run := range b.taken() {
			id, _, _ := strings.Cut(run, " ")
			counts[id]++
		}
		for id, n := range counts {
			if n < 9 || n > 11 {
				t.Errorf("%s was probed %d times in 10 s", id, n)
			}
		}
		if most := b.mostAtOnce(); len(counts) != 100 || most > 10 {
			t.Errorf("%d containers probed, at most %d at once", len(counts), most)
		}
	})
}

// Commands that hang hold up neither the others nor the daemon's end, and what waits isn't counted as failed.
func TestHangingCommands(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.takes = time.Hour
		for i := range 30 {
			b.pod(fmt.Sprintf("u%d", i), 1)
		}
		stop := b.start()
		b.after(30 * time.Second)
		if got := len(b.taken()); got != 30 {
			t.Errorf("%d of 30 have begun", got)
		}
		b.wantVerdicts("")
		stop()
		if len(b.events) != 0 {
			t.Errorf("events %v", b.events)
		}
	})
}

// A runtime that is away is said once.
func TestRuntimeAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start()
		defer stop()
		b.pod("u1", 1)
		b.tell(func(string) (check.Result, error) {
			return check.Result{}, check.RuntimeError{Cause: errors.New("no answer")}
		})
		b.after(10 * time.Second)
		if len(b.events) != 0 ||
			!strings.HasPrefix(b.health, "degraded can't run an exec probe, its last verdict stays valid: no answer") {
			t.Errorf("events %v, health %q", b.events, b.health)
		}
		b.wantVerdicts(bothGood)
		b.tell(func(string) (check.Result, error) { return check.Result{}, errors.New("no such container") })
		b.after(1500 * time.Millisecond)
		if len(b.events) == 0 ||
			b.events[0].Message != "Readiness probe errored and resulted in unknown state: no such container" ||
			b.health != "healthy" {
			t.Errorf("events %v, health %q", b.events, b.health)
		}
		b.wantVerdicts(bothGood)
	})
}

// What is malformed on the bus is left out, and the rest goes on.
func TestMalformedMessages(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.bus.Transport("podsync", slog.New(slog.DiscardHandler))
		for subject, data := range map[string]string{
			"pod.update.bad": "{", "pod.update.empty": "{}", "pleg.event.bad": `{"containers": 3}`,
			"probe.result.u1.app.startup": `"x"`,
			"probe.result.u1.app.none":    `{}`, "pleg.event.empty": "{}", "pleg.event.u2": "null",
		} {
			if err := other.Publish(t.Context(), bus.Message{Subject: subject, Data: []byte(data)}); err != nil {
				t.Fatal(err)
			}
		}
		other.Close()
		b.pod("u1", 1)
		stop := b.start()
		defer stop()
		if err := b.seen.Set("u1", topic.PodObservation{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.verdicts(); !strings.Contains(got, bothGood[:10]) || !strings.Contains(got, "u1.app.startup c-u1 true") {
			t.Errorf("verdicts %s", got)
		}
	})
}

func TestThreshold(t *testing.T) {
	spec := &corev1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	var got []string
	count := Threshold{}
	for _, success := range []bool{true, true, true, false, false, true, false, false, false, false} {
		count = count.next(success)
		got = append(got, fmt.Sprint(count.reached(spec)))
	}
	if want := "false true true false false false false false true true"; strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	if !(Threshold{}.next(true).reached(&corev1.Probe{})) ||
		(Threshold{}.next(false).next(false).reached(&corev1.Probe{})) {
		t.Error("the defaults are one success and three failures")
	}
}
