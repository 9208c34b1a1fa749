package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/probe/internal/check"
)

// Runs that take long, more than there are workers, don't keep other probes from theirs, and go on themselves when they
// end.
func TestMoreRunsThanWorkers(t *testing.T) {
	inBubble(t, func(b *bed) {
		const hanging = 30
		b.takes = 2 * time.Minute
		stop := b.start()
		defer stop()
		for i := range hanging {
			b.pod(fmt.Sprintf("h%d", i), 1)
		}
		b.after(hanging * time.Second)
		b.mu.Lock()
		b.takes = time.Millisecond
		b.mu.Unlock()
		b.pod("u1", 1)
		b.after(100 * time.Millisecond)
		b.wantVerdicts(bothGood)
		b.after(3 * time.Minute)
		b.taken()
		b.after(10 * time.Second)
		count := map[string]int{}
		for _, run := range b.taken() {
			count[strings.Fields(run)[0]]++
		}
		for i := range hanging {
			if n := count[fmt.Sprintf("c-h%d", i)]; n != 10 {
				t.Errorf("probe %d that has hung ran %d times in 10 s, want 10", i, n)
			}
		}
	})
}

// Two pods in succession may have the same name: the end of one takes no run of the other out of the metrics.
func TestMetricsOfPodsOfOneName(t *testing.T) {
	pages := http.NewServeMux()
	m, err := newMetrics(prometheus.NewPedanticRegistry(), pages)
	if err != nil {
		t.Fatal(err)
	}
	made := func(uid string) *probe {
		return &probe{target: target{slot: slot{"app", topic.ProbeReadiness}}, ref: topic.Ref{
			Namespace: "default",
			Name:      "db-0", UID: uid,
		}}
	}
	old, replacement := made("u1"), made("u2")
	m.ended(old, true, time.Second)
	m.ended(replacement, true, time.Second)
	m.gone(old.ref)
	for range 3 {
		m.ended(replacement, true, time.Second)
		m.ended(replacement, false, time.Second)
	}
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, page, nil))
	for _, want := range []string{
		`prober_probe_duration_seconds_count{container="app",namespace="default",pod="db-0",probe_type="Readiness"} 3`,
		`pod_uid="u2",probe_type="Readiness",result="successful"} 4`,
		`pod_uid="u2",probe_type="Readiness",result="failed"} 3`,
	} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, answer.Body)
		}
	}
	if strings.Contains(answer.Body.String(), `pod_uid="u1"`) {
		t.Errorf("the pod that is gone has series:\n%s", answer.Body)
	}
}

// Workers that a burst has made end when they aren't needed any more, and those that are needed stay.
func TestIdleWorkersEnd(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.takes = 500 * time.Millisecond
		stop := b.start()
		defer stop()
		for i := range 40 {
			b.pod(fmt.Sprintf("u%d", i), 1)
		}
		b.after(10 * time.Second)
		if n := workersThere(); n < 10 {
			t.Fatalf("%d workers run 40 probes a second of half a second; is nothing measured?", n)
		}
		for i := range 40 {
			if i == 0 {
				continue
			}
			uid := fmt.Sprintf("u%d", i)
			if err := errors.Join(b.pods.Delete(uid), b.seen.Delete(uid)); err != nil {
				t.Fatal(err)
			}
		}
		b.after(3 * idleFor)
		if n := workersThere(); n != 1 {
			t.Errorf("%d workers are there for one probe", n)
		}
		b.taken()
		b.after(10 * time.Second)
		if n := len(b.taken()); n != 10 {
			t.Errorf("the probe ran %d times in 10 s", n)
		}
	})
}

// workersThere is how many workers there are once those that end have ended. It counts stacks: the number of all
// goroutines also has those of the test binary, such as one that runs finalizers for a moment.
func workersThere() int {
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*Service).work(")
}

// Of the workers that are free, those go that were free all the time.
func TestSurplusWorkers(t *testing.T) {
	var w workers
	now := epoch
	for range 5 {
		if w.take() {
			t.Fatal("a worker is free that nobody has made")
		}
	}
	for i := range 5 {
		if kept := w.put(now, 4); kept != (i < 4) {
			t.Fatalf("worker %d is kept: %v", i, kept)
		}
	}
	for i, want := range []int{0, 2, 1, 1, 0} {
		now = now.Add(idleFor)
		busy := map[int]int{1: 2, 2: 1}[i] // so many work in between
		for range busy {
			w.take()
		}
		for range busy {
			w.put(now, 4)
		}
		if got := w.shrink(now.Add(-1)); got != 0 {
			t.Errorf("review %d: %d go before it is time", i, got)
		}
		if got := w.shrink(now); got != want {
			t.Errorf("review %d: %d go, want %d", i, got, want)
		}
	}
	if !w.review.IsZero() {
		t.Error("a timer runs although there is no worker")
	}
}

// mostAtOnce is how many ran at once since the last call.
func (b *bed) mostAtOnce() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.most
	b.most = b.now
	return most
}

// What runs when the daemon stops is broken off, which may look as if the probe had failed.
func TestAStopFailsNoProbe(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.takes = time.Hour
		b.tell(func(string) (check.Result, error) { return check.Result{Output: "context canceled"}, nil })
		conn := b.bus.Conn("probe")
		defer conn.Close()
		for range 20 { // a loop that has not seen yet that it is to stop takes a result or doesn't
			s := New(b, daemon.Env{Bus: conn})
			s.results = make(chan result, 1)
			ctx, cancel := context.WithCancel(b.t.Context())
			s.loop.Go(func() { s.work(ctx, run{probe: &probe{}}) })
			synctest.Wait()
			cancel()
			s.loop.Wait()
			if len(s.results) > 0 {
				t.Fatal("a probe has failed because the daemon stops")
			}
		}
	})
}

// At a stop the workers leave, also those for which a run lies ready. The loop doesn't wait for them to take another.
func TestAStopWaitsForNoWorker(t *testing.T) {
	inBubble(t, func(b *bed) {
		conn := b.bus.Conn("probe")
		defer conn.Close()
		s := New(b, daemon.Env{Bus: conn})
		var err error
		if s.metrics, err = newMetrics(prometheus.NewPedanticRegistry(), http.NewServeMux()); err != nil {
			t.Fatal(err)
		}
		for range cap(s.runs) {
			s.runs <- run{}
		}
		ctx, cancel := context.WithCancel(b.t.Context())
		cancel()
		s.dismiss(ctx, 1)
		s.workers.free = 1
		s.begin(ctx, &probe{target: target{spec: &corev1.Probe{}}})
	})
}
