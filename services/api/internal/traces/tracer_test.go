package traces

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/loop"
)

// tracing is the environment of a daemon that traces so many pods of a million.
func tracing(conn *bus.Conn, endpoint string, rate int32) daemon.Env {
	c := &config.Config{NodeName: "n1"}
	c.Kubelet.Tracing = &tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: &rate}
	return daemon.Env{Config: c, Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
}

// life runs a tracer on the bus, as the daemon does, until the returned function is called.
func life(t *testing.T, b *bustest.Bus, endpoint string) (s *sender, stop func()) {
	t.Helper()
	conn := b.Conn("api")
	tracer, err := New(tracing(conn, endpoint, 1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	tracer.sender.lastWithin = time.Minute
	l := loop.New(conn)
	ctx, cancel := context.WithCancel(t.Context())
	if err := loop.Follow(ctx, l, topic.PodUpdate, tracer.Pod); err != nil {
		t.Fatal(err)
	}
	if err := loop.Follow(ctx, l, topic.MergedStatus, tracer.Status); err != nil {
		t.Fatal(err)
	}
	tracer.Begin(ctx, l)
	l.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case change := <-l.Changes():
				change()
			}
		}
	})
	return tracer.sender, func() {
		cancel()
		l.Wait()
		conn.Close()
	}
}

// The spans of a pod arrive in one trace, each once, although the daemon is restarted in between.
func TestATraceOverARestart(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	b := bustest.New()
	podsync, status := b.Conn("podsync"), b.Conn("status")
	defer podsync.Close()
	defer status.Close()
	updates, steps := topic.PodUpdate.Writer(podsync), topic.PodStep.Publisher(podsync)
	statuses := topic.MergedStatus.Writer(status)
	ref := topic.Ref{Namespace: "default", Name: "web", UID: uidOf["a"]}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now().Add(-time.Second)
	told := uint64(0)
	step := func(name string) {
		t.Helper()
		told++
		must(steps.Publish(ref.UID, topic.Step{
			Ref: ref, Name: name, Phase: topic.StepEnd, Duration: time.Millisecond, At: begin.Add(100 * time.Millisecond),
			Span: fmt.Sprintf("%016x", told),
		}))
	}
	must(updates.Set(ref.UID, topic.Pod{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID),
		}},
		Lifecycle: topic.Syncing, FirstSeen: begin,
	}))
	must(updates.Flush(t.Context()))

	sender, stop := life(t, b, c.address)
	// Events before the first life aren't read; it is under way when it reads the first one.
	eventually(t, func() bool {
		step("create sandbox")
		n := 0
		c.set(func(c *collector) { n = len(c.spans) })
		time.Sleep(50 * time.Millisecond)
		return n > 0
	})
	must(steps.Flush(t.Context()))
	// A request that the stop interrupts is repeated, and the collector may have its spans already.
	eventually(t, func() bool {
		n, last := 0, uint64(0)
		c.set(func(c *collector) {
			n = len(c.spans)
			last = binary.BigEndian.Uint64(c.spans[n-1].GetSpanId())
		})
		return last == told && testutil.ToFloat64(sender.sent) == float64(n)
	})
	stop()
	step("start container")
	must(statuses.Set(ref.UID, topic.Merged{Ref: ref}))
	must(statuses.Flush(t.Context()))
	_, stop = life(t, b, c.address)
	defer stop()
	c.hasNamed(t, "start container")
	must(statuses.Set(ref.UID, topic.Merged{Ref: ref, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}}))
	c.hasNamed(t, spanPod)
	named, ids := map[string]*tracepb.Span{}, map[uint64]bool{}
	for _, s := range c.has(t, 1) {
		named[s.GetName()] = s
		id := binary.BigEndian.Uint64(s.GetSpanId())
		if ids[id] {
			t.Errorf("%s was sent twice", s)
		}
		ids[id] = true
		if got := hex.EncodeToString(s.GetTraceId()); got != "4f7c1a520c5e4a6e9d0e2f1f5b1c7a11" {
			t.Errorf("%s is in the trace %s", s.GetName(), got)
		}
	}
	// The reader may have begun after the first steps, and has all from then on.
	for id := told; id > 0; id-- {
		if ids[id-1] && !ids[id] {
			t.Errorf("step %d of %d was lost", id, told)
		}
	}
	for _, name := range []string{"create sandbox", "start container"} {
		if string(named[name].GetParentSpanId()) != string(named[spanPod].GetSpanId()) {
			t.Errorf("%s isn't below the pod's span", name)
		}
	}
	if got := named[spanPod]; got.GetStartTimeUnixNano() != uint64(begin.UnixNano()) || got.GetParentSpanId() != nil {
		t.Errorf("the pod's span: %v", got)
	}
	var resource map[string]string
	c.set(func(c *collector) { resource = c.resource })
	for name, want := range map[string]string{
		"service.name": "kubelet", "host.name": "n1", "k8s.node.name": "n1", "service.version": daemon.Version(),
	} {
		if resource[name] != want {
			t.Errorf("%s is %q, want %q", name, resource[name], want)
		}
	}
}

// A request's span is below that of the client, and the sampling of new traces is OpenTelemetry's.
func TestARequest(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	tracer, err := New(tracing(nil, c.address, 1))
	if err != nil {
		t.Fatal(err)
	}
	handler := tracer.Handler(http.NotFoundHandler(), func(r *http.Request) string { return r.Method + " /exec" })
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, header := range []string{"", parent} {
		r := httptest.NewRequest(http.MethodGet, "/exec/ns/pod/app?command=secret", nil)
		r.Header.Set("Traceparent", header)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	tracer.sender.lastWithin = time.Minute
	ctx, stop := context.WithCancel(t.Context())
	stop()
	tracer.sender.run(ctx) // it sends what is left
	spans := c.has(t, 1)
	if len(spans) != 1 || spans[0].GetName() != "GET /exec" || spans[0].GetKind() != tracepb.Span_SPAN_KIND_SERVER ||
		fmt.Sprintf("%x %x", spans[0].GetTraceId(), spans[0].GetParentSpanId()) !=
			"4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7" {
		t.Errorf("spans %v, want one below the client's", spans)
	}
	for _, a := range spans[0].GetAttributes() {
		if s := a.GetValue().GetStringValue(); s == "command=secret" || s == "/exec/ns/pod/app?command=secret" {
			t.Errorf("%s has the request's parameters: %s", a.GetKey(), s)
		}
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	tracer, err := New(tracing(nil, "localhost:4317", 0))
	if err != nil || tracer != nil {
		t.Fatalf("%v, %v; want nothing", tracer, err)
	}
	tracer.Begin(t.Context(), nil)
	tracer.Pod(bus.Change[topic.Pod]{Synced: true})
	tracer.Status(bus.Change[topic.Merged]{Synced: true})
	if handler := http.NotFoundHandler(); tracer.Handler(handler, nil) == nil {
		t.Error("no handler")
	}
}

// Why the sampling of pods isn't OpenTelemetry's: that looks at the bytes of a trace ID in which UUIDs have their fixed
// bits, and so takes none of them below a half, and all from three quarters on.
func TestRatioSamplersDontFitUUIDs(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]int{0.01: 0, 0.4999: 0, 0.7501: 1000} {
		sampler, got := sdktrace.TraceIDRatioBased(rate), 0
		for range 1000 {
			var id trace.TraceID
			for i := range id {
				id[i] = byte(rand.Uint32())
			}
			id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
			if sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: id}).Decision == sdktrace.RecordAndSample {
				got++
			}
		}
		if got != want {
			t.Errorf("at the rate %g it takes %d of 1000 UUIDs, want %d", rate, got, want)
		}
	}
}
