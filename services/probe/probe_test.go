package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/probe/internal/check"
)

func TestMain(m *testing.M) {
	if value := os.Getenv(socketVariable); value != "" {
		serveRuntime(value)
	}
	goleak.VerifyTestMain(m)
}

// bed is the daemon on a bus in memory, with probes that answer as told, all in a synctest bubble.
type bed struct {
	t     *testing.T
	bus   *bustest.Bus
	pods  *bus.Writer[topic.Pod]
	seen  *bus.Writer[topic.PodObservation]
	pages *http.ServeMux

	mu     sync.Mutex
	runs   []string // "CONTAINER-ID KIND-OF-HANDLER SECOND"
	most   int      // runs at once
	now    int
	events []topic.Event
	health string
	began  time.Time
	answer func(id string) (check.Result, error)
	takes  time.Duration
}

func inBubble(t *testing.T, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, bus: bustest.New(), began: time.Now(), answer: func(string) (check.Result, error) { return check.Result{Success: true}, nil }}
		podsync, pleg := b.bus.Conn("podsync"), b.bus.Conn("pleg")
		b.pods, b.seen = topic.PodUpdate.Writer(podsync), topic.PLEGEvent.Writer(pleg)
		test(b)
		podsync.Close()
		pleg.Close()
	})
}

// Run is a probe's run.
func (b *bed) Run(ctx context.Context, t check.Target, _ *corev1.Probe) (check.Result, error) {
	b.mu.Lock()
	b.runs = append(b.runs, fmt.Sprintf("%s %s", t.ContainerID, time.Since(b.began).Truncate(time.Second)))
	b.now++
	b.most = max(b.most, b.now)
	answer, takes := b.answer, b.takes
	b.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	b.mu.Lock()
	b.now--
	b.mu.Unlock()
	return answer(t.ContainerID)
}

func (b *bed) Record(e topic.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bed) Set(state topic.HealthState, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health = strings.TrimSpace(string(state) + " " + message)
}

func (b *bed) tell(answer func(id string) (check.Result, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// taken is what has run since the last call.
func (b *bed) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := b.runs
	b.runs = nil
	return runs
}

// series is how many the page of the containers' probes has.
func (b *bed) series() int {
	b.t.Helper()
	answer := httptest.NewRecorder()
	b.pages.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, page, nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil || answer.Code != http.StatusOK {
		b.t.Fatalf("%s: %d, %v", page, answer.Code, err)
	}
	n := 0
	for _, family := range families {
		n += len(family.Metric)
	}
	return n
}

// start runs the daemon; stop ends it and waits.
func (b *bed) start() (stop func()) {
	b.t.Helper()
	b.pages = http.NewServeMux()
	conn := b.bus.Conn("probe")
	ctx, cancel := context.WithCancel(b.t.Context())
	end := make(chan error, 1)
	env := daemon.Env{Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewPedanticRegistry(), Pages: b.pages, Health: b, Events: b}
	go func() { end <- New(b, env).Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-end; err != nil {
			b.t.Errorf("Run = %v", err)
		}
		conn.Close()
	}
}

func (b *bed) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// pod states a pod whose one container runs, with probes of that period.
func (b *bed) pod(uid string, period int32) {
	b.t.Helper()
	probe := func() *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: period, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-" + uid, Namespace: "ns"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app", StartupProbe: probe(), ReadinessProbe: probe()}},
	}}
	if err := b.pods.Set(uid, topic.Pod{Pod: pod, Lifecycle: topic.Syncing}); err != nil {
		b.t.Fatal(err)
	}
	b.running(uid, "c-"+uid)
}

func (b *bed) running(uid string, ids ...string) {
	b.t.Helper()
	seen := topic.PodObservation{Ref: topic.Ref{UID: uid}}
	for _, id := range ids {
		seen.Containers = append(seen.Containers, topic.Container{ID: id, Name: "app", State: topic.ContainerRunning, StartedAt: time.Now()})
	}
	if err := b.seen.Set(uid, seen); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// verdicts are what the bus retains, as "KEY CONTAINER-ID SUCCESS".
func (b *bed) verdicts() string {
	b.t.Helper()
	var lines []string
	for subject, data := range b.bus.Retained() {
		key, ok := strings.CutPrefix(subject, "probe.result.")
		if !ok {
			continue
		}
		var v topic.Probe
		if err := json.Unmarshal(data, &v); err != nil {
			b.t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %v", key, v.ContainerID, v.Success))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func (b *bed) wantVerdicts(want string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.verdicts(); got != want {
		b.t.Errorf("verdicts are\n     %s\nwant %s", got, want)
	}
}

const bothGood = "u1.app.readiness c-u1 true, u1.app.startup c-u1 true"

// Restarts of the daemon, with the bus's state there or lost, change no verdict and repeat no startup probe.
func TestRestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.bus.Restrict(Contract, bus.Contract{Daemon: "podsync", Writes: []bus.Topic{topic.PodUpdate}}, bus.Contract{Daemon: "pleg", Writes: []bus.Topic{topic.PLEGEvent}})
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

// A new container begins anew, and a pod that goes leaves nothing: no verdict, no metric.
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
		if len(b.events) != 1 || b.events[0].Message != "Startup probe failed: ill" || b.events[0].FieldPath != "spec.containers{app}" || b.events[0].Name != "web-u1" || b.events[0].UID != "u1" {
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
		if len(counts) != 100 || b.most > 10 {
			t.Errorf("%d containers probed, at most %d at once", len(counts), b.most)
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
		if len(b.events) != 0 || !strings.HasPrefix(b.health, "degraded an exec probe can't be run, its verdict stays as it is: no answer") {
			t.Errorf("events %v, health %q", b.events, b.health)
		}
		b.wantVerdicts(bothGood)
		b.tell(func(string) (check.Result, error) { return check.Result{}, errors.New("no such container") })
		b.after(1500 * time.Millisecond)
		if len(b.events) == 0 || b.events[0].Message != "Readiness probe errored and resulted in unknown state: no such container" || b.health != "healthy" {
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
			"pod.update.bad": "{", "pod.update.empty": "{}", "pleg.event.bad": `{"containers": 3}`, "probe.result.u1.app.startup": `"x"`,
			"probe.result.u1.app.none": `{}`, "pleg.event.empty": "{}", "pleg.event.u2": "null",
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
		count = count.Next(success)
		got = append(got, fmt.Sprint(count.Reached(spec)))
	}
	if want := "false true true false false false false false true true"; strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	if !(Threshold{}.Next(true).Reached(&corev1.Probe{})) || (Threshold{}.Next(false).Next(false).Reached(&corev1.Probe{})) {
		t.Error("the defaults are one success and three failures")
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("u1.app.readiness")
	f.Add("..")
	f.Fuzz(func(t *testing.T, key string) {
		if uid, s, ok := parseKey(key); ok && s.key(uid) != key {
			t.Errorf("%q became %q", key, s.key(uid))
		}
	})
}
