package probe

import (
	"context"
	"encoding/json"
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
		b := &bed{t: t, bus: bustest.New(), began: time.Now(), answer: func(string) (check.Result, error) {
			return check.Result{Success: true}, nil
		}}
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
	env := daemon.Env{
		Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewPedanticRegistry(),
		Pages: b.pages, Health: b, Events: b,
	}
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
		return &corev1.Probe{
			PeriodSeconds: period, FailureThreshold: 1,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}},
		}
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
		seen.Containers = append(seen.Containers, topic.Container{
			ID: id, Name: "app", State: topic.ContainerRunning,
			StartedAt: time.Now(),
		})
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
