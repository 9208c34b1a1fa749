package traces

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/loop"
)

const (
	// position is the name of the reader of steps on the bus.
	position = "traces"
	// settling is how long a step waits for what was said of its pod before it, which is read apart from it: a step of a
	// few milliseconds came first.
	settling = time.Second
	// worth is how old a step may be whose span is sent: tracing may have been off for long.
	worth = 10 * time.Minute
)

// Tracer traces pods and requests. A nil Tracer is one that is off: it does nothing.
type Tracer struct {
	bus    *bus.Conn
	sender *sender
	// requests makes the spans of requests.
	requests *sdktrace.TracerProvider

	// pods, podsKnown and statusesKnown belong to the daemon's loop. The flags are true once the bus has given what it
	// had.
	pods                     *Pods
	podsKnown, statusesKnown bool
	// known is closed with podsKnown.
	known chan struct{}
}

// New makes a tracer as the configuration says: nil if nothing is to be traced. It starts nothing.
func New(env daemon.Env) (*Tracer, error) {
	endpoint, perMillion := config.Tracing(env.Config)
	if perMillion == 0 {
		return nil, nil
	}
	node := env.Config.NodeName
	s, err := newSender(endpoint, &resourcepb.Resource{Attributes: attributes(
		"service.name", "kubelet", "service.version", daemon.Version(), "host.name", node, "k8s.node.name", node,
	)}, env.Metrics, env.Log)
	if err != nil {
		return nil, err
	}
	return &Tracer{
		bus: env.Bus, sender: s, pods: newPods(topic.Sampling(perMillion)), known: make(chan struct{}),
		requests: sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(perMillion)/1e6))),
			sdktrace.WithSyncer(otlptrace.NewUnstarted(uploader{s})), // it only queues
		),
	}, nil
}

// Begin reads the steps of pods and sends spans, until ctx ends.
func (t *Tracer) Begin(ctx context.Context, l *loop.Loop) {
	if t == nil {
		return
	}
	l.Go(func() { t.sender.run(ctx) })
	l.Go(func() {
		select {
		case <-t.known: // a step's span is below one of the pod's
		case <-ctx.Done():
			return
		}
		for o := range topic.PodStep.Subscribe(ctx, t.bus, bus.From{Durable: position, Since: time.Now()}) {
			pause.For(ctx, settling-time.Since(o.At))
			l.Do(ctx, func() {
				if span, ok := t.pods.step(&o.Value); ok && time.Since(o.At) < worth {
					t.sender.add(span.message())
				}
				o.Ack()
			})
		}
	})
}

// Pod takes in a change of pod.update, in the daemon's loop.
func (t *Tracer) Pod(c bus.Change[topic.Pod]) {
	switch {
	case t == nil:
	case c.Synced && !t.podsKnown:
		t.podsKnown = true
		close(t.known)
	case c.Synced:
	case c.Deleted:
		t.send(t.pods.Gone(c.Key, c.At))
	default:
		t.send(t.pods.Update(&c.Value, c.At, !t.podsKnown))
	}
}

// Status takes in a change of pod.status, in the daemon's loop.
func (t *Tracer) Status(c bus.Change[topic.Merged]) {
	switch {
	case t == nil:
	case c.Deleted:
		t.pods.statusGone(c.Key)
	case c.Synced:
		t.statusesKnown = true
	default:
		t.send(t.pods.Status(&c.Value, c.At, !t.statusesKnown))
	}
}

func (t *Tracer) send(spans []Span) {
	for i := range spans {
		t.sender.add(spans[i].message())
	}
}

// Handler gives each request a span with this name, below the span that the client names.
func (t *Tracer) Handler(next http.Handler, name func(*http.Request) string) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(t.requests),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return name(r) }))
}

// uploader has the sender send what OpenTelemetry's library has made.
type uploader struct{ to *sender }

func (uploader) Start(context.Context) error { return nil }
func (uploader) Stop(context.Context) error  { return nil }

// UploadTraces queues the spans.
func (u uploader) UploadTraces(_ context.Context, all []*tracepb.ResourceSpans) error {
	for _, of := range all {
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				u.to.add(span)
			}
		}
	}
	return nil
}
