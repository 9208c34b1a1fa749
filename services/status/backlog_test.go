package status

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

// A burst of starts must not share the API server with the Events about it; yet no Event waits for ever.
func TestNormalEventsGiveWayToStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrote := &lastWrite{}
		r := &recorder{wrote: wrote}
		begin := time.Now()
		normal := topic.Event{Type: corev1.EventTypeNormal, At: begin}

		wrote.note()
		r.giveWay(t.Context(), topic.Event{Type: corev1.EventTypeWarning, At: begin})
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("a warning waited %s", waited)
		}
		r.giveWay(t.Context(), normal)
		if waited := time.Since(begin); waited != giveWayTo {
			t.Errorf("waited %s after the last write, want %s", waited, giveWayTo)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		defer writer.Wait()
		defer cancel()
		writer.Go(func() {
			for ctx.Err() == nil {
				wrote.note()
				time.Sleep(giveWayTo / 2)
			}
		})
		synctest.Wait()
		r.giveWay(ctx, normal)
		if waited := time.Since(begin); waited != giveWayFor {
			t.Errorf("waited %s while pods were written all the time, want %s", waited, giveWayFor)
		}
	})
}

// forgetful is an API server that takes every Event and keeps none.
type forgetful struct{}

func (forgetful) CreateEvent(_ context.Context, e *corev1.Event) (*corev1.Event, error) {
	return e, nil
}

func (forgetful) PatchEvent(_ context.Context, e *corev1.Event, _ []byte) (*corev1.Event, error) {
	return e, nil
}

func TestEventsOfPodsThatHaveGoneTakeNoMoreMemoryThanThoseOfTheNodesPods(t *testing.T) {
	c := &config.Config{NodeName: "n1"}
	c.Kubelet.MaxPods = 20
	r := newRecorder(daemon.Env{Config: c, Log: slog.New(slog.DiscardHandler)}, forgetful{}, &lastWrite{})
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	record := func(from, to int) {
		for i := from; i < to; i++ {
			name := fmt.Sprintf("pod-%d", i)
			r.record(t.Context(), topic.Event{
				Kind: "Pod", Ref: topic.Ref{Namespace: "default", Name: name, UID: "uid-" + name}, Type: corev1.EventTypeNormal,
				Reason: "Started", Message: "Started container main of " + name, At: time.Now(),
			})
		}
	}
	record(0, 200)
	before := live()
	record(200, 3000)
	// Each would be a kilobyte.
	if grown := live() - before; grown > 400_000 {
		t.Errorf("2,800 Events of other pods take %d bytes", grown)
	}
	runtime.KeepAlive(r)
}

// More Events than the API server may be sent: what waits is bounded, Warnings outlast the others, and all are
// acknowledged in the end.
func TestTheBacklogOfEventsIsBounded(t *testing.T) {
	var acked, reported int
	event := func(kind string, n int) bus.Occurrence[topic.Event] {
		e := topic.Event{Type: kind, Message: fmt.Sprint(n)}
		return bus.Occurrence[topic.Event]{Value: e, Ack: func() { acked++ }}
	}
	b := &backlog{wake: make(chan struct{}, 1)}
	in := make(chan bus.Occurrence[topic.Event])
	go func() {
		defer close(in)
		in <- event(corev1.EventTypeWarning, 0)
		for n := range 2 * maxWaiting {
			in <- event(corev1.EventTypeNormal, n)
		}
		for n := range maxWaiting + 5 {
			in <- event(corev1.EventTypeWarning, n+1)
		}
	}()
	b.collect(in, func(n int) { reported += n })
	if len(b.waiting) != maxWaiting || acked != 2*maxWaiting+6 || reported != acked {
		t.Errorf("%d wait, %d were dropped, %d reported; want %d, %[5]d and all of them", len(b.waiting), acked, reported,
			maxWaiting, 2*maxWaiting+6)
	}
	for n := 6; ; n++ {
		o, ok := b.next(t.Context())
		if !ok {
			if n != maxWaiting+6 {
				t.Errorf("the last was %d", n-1)
			}
			break
		}
		if o.Value.Type != corev1.EventTypeWarning || o.Value.Message != fmt.Sprint(n) {
			t.Fatalf("%s %s is next, want Warning %d", o.Value.Type, o.Value.Message, n)
		}
	}
}

// A burst that ends while another report would come too soon is reported a while later, not with the next burst.
func TestAllDropsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backlog{wake: make(chan struct{}, 1)}
		in := make(chan bus.Occurrence[topic.Event])
		var reports []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.collect(in, func(n int) { reports = append(reports, n) })
		}()
		burst := func(n int) {
			for range n {
				in <- bus.Occurrence[topic.Event]{Ack: func() {}}
			}
			synctest.Wait()
		}
		burst(maxWaiting + 7)
		if want := []int{1}; !slices.Equal(reports, want) {
			t.Errorf("at the end of the burst: reports of %v, want %v", reports, want)
		}
		time.Sleep(dropsEvery)
		synctest.Wait()
		if want := []int{1, 6}; !slices.Equal(reports, want) {
			t.Errorf("a while after the burst: reports of %v, want %v", reports, want)
		}
		time.Sleep(dropsEvery / 2)
		burst(3)
		time.Sleep(dropsEvery / 4)
		burst(2)
		time.Sleep(dropsEvery / 4)
		synctest.Wait()
		if want := []int{1, 6, 5}; !slices.Equal(reports, want) {
			t.Errorf("after two bursts soon after each other: reports of %v, want %v", reports, want)
		}
		burst(4)
		close(in)
		<-done
		if want := []int{1, 6, 5, 4}; !slices.Equal(reports, want) {
			t.Errorf("after the end: reports of %v, want %v", reports, want)
		}
	})
}

// The time of day is set back by an hour: the Events from before it hold up the others no longer than any.
func TestAClockThatIsSetBackHoldsUpNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrote := &lastWrite{}
		r := &recorder{wrote: wrote}
		ctx, cancel := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		defer writer.Wait()
		defer cancel()
		writer.Go(func() {
			for ctx.Err() == nil {
				wrote.note()
				time.Sleep(giveWayTo / 2)
			}
		})
		synctest.Wait()
		begin := time.Now()
		r.giveWay(ctx, topic.Event{Type: corev1.EventTypeNormal, At: begin.Add(time.Hour)})
		if waited := time.Since(begin); waited != giveWayFor {
			t.Errorf("waited %s, want %s", waited, giveWayFor)
		}
	})
}
