package traces

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"kubelot.dev/bus/pause"
)

const (
	// queued is the most spans that wait for the collector, besides those of one request; batch is how many one request
	// has at most, and collecting how long it waits for them.
	queued, batch = 2048, 512
	collecting    = time.Second
	// answerWithin is how long the collector may take for a request, lastWithin for the last ones when the daemon stops
	// (tests have their own).
	answerWithin = 10 * time.Second
	lastWithin   = time.Second
	// retryFirst and retryMax bound the pauses between tries of a request.
	retryFirst, retryMax = time.Second, 10 * time.Second
	connectWithin        = 3 * time.Second
)

// sender sends spans to a collector. add may be called from any goroutine.
type sender struct {
	endpoint  string
	collector collectorpb.TraceServiceClient
	conn      *grpc.ClientConn
	resource  *resourcepb.Resource
	scope     *commonpb.InstrumentationScope
	spans     chan *tracepb.Span
	log       *slog.Logger

	lastWithin    time.Duration
	sent, dropped prometheus.Counter
	away          bool // of run
}

// newSender makes a sender. It connects with the first spans. The error says that the endpoint can't be one, or that
// metrics clash.
func newSender(endpoint string, resource *resourcepb.Resource, r prometheus.Registerer, log *slog.Logger,
) (*sender, error) {
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMax},
			MinConnectTimeout: connectWithin,
		}))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint %q: %w", endpoint, err)
	}
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelot_trace_spans_total",
		Help: "Spans that the collector has taken (sent) or that it refused or there was no room for (dropped).",
	}, []string{"result"})
	if err := r.Register(spans); err != nil {
		return nil, fmt.Errorf("register the metrics of traces: %w", err)
	}
	return &sender{
		endpoint: endpoint, collector: collectorpb.NewTraceServiceClient(conn), conn: conn, resource: resource, log: log,
		scope: &commonpb.InstrumentationScope{Name: "kubelot"}, spans: make(chan *tracepb.Span, queued),
		lastWithin: lastWithin, sent: spans.WithLabelValues("sent"), dropped: spans.WithLabelValues("dropped"),
	}, nil
}

// add takes a span to be sent. If there is no room, the oldest one is dropped.
func (s *sender) add(span *tracepb.Span) {
	for {
		select {
		case s.spans <- span:
			return
		default:
		}
		select {
		case <-s.spans:
			s.dropped.Inc()
		default:
		}
	}
}

// run sends until ctx ends, and what is left in the second after that.
func (s *sender) run(ctx context.Context) {
	// Nothing can be done about a connection that doesn't close.
	defer func() { _ = s.conn.Close() }()
	for ctx.Err() == nil {
		if spans := s.collect(ctx); len(spans) > 0 {
			s.send(ctx, spans)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.lastWithin)
	defer cancel()
	for spans := s.rest(nil); len(spans) > 0; spans = s.rest(nil) {
		s.settle(last, spans, s.export(last, spans))
	}
}

// collect waits for a span, and a little for others. It returns early when ctx ends.
func (s *sender) collect(ctx context.Context) []*tracepb.Span {
	select {
	case span := <-s.spans:
		if len(s.spans) < batch {
			pause.For(ctx, collecting)
		}
		return s.rest([]*tracepb.Span{span})
	case <-ctx.Done():
		return nil
	}
}

// rest adds what is there, up to a batch.
func (s *sender) rest(spans []*tracepb.Span) []*tracepb.Span {
	for len(spans) < batch {
		select {
		case span := <-s.spans:
			spans = append(spans, span)
		default:
			return spans
		}
	}
	return spans
}

// send sends the spans until the collector has taken or refused them. When ctx ends there is one more try.
func (s *sender) send(ctx context.Context, spans []*tracepb.Span) {
	for failures := 1; ; failures++ {
		err := s.export(ctx, spans)
		if ctx.Err() != nil && err != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.lastWithin)
			defer cancel()
			s.settle(last, spans, s.export(last, spans))
			return
		}
		if !passing(err) {
			s.settle(ctx, spans, err)
			return
		}
		s.trouble(err)
		pause.For(ctx, pause.After(failures, retryFirst, retryMax))
	}
}

// export makes one request. Spans that the collector refused although it took others are counted.
func (s *sender) export(ctx context.Context, spans []*tracepb.Span) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := s.collector.Export(ctx, &collectorpb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{
			Resource: s.resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: s.scope, Spans: spans}},
		}},
	})
	if err != nil {
		return err
	}
	refused := min(max(answer.GetPartialSuccess().GetRejectedSpans(), 0), int64(len(spans)))
	s.dropped.Add(float64(refused))
	s.sent.Add(float64(int64(len(spans)) - refused))
	return nil
}

// settle counts the spans as dropped where the request failed.
func (s *sender) settle(ctx context.Context, spans []*tracepb.Span, err error) {
	switch {
	case err != nil:
		s.dropped.Add(float64(len(spans)))
		if ctx.Err() == nil {
			s.trouble(err)
		}
	case s.away:
		s.away = false
		s.log.Info("the collector of traces takes spans again", "endpoint", s.endpoint)
	}
}

// trouble logs the first of a row of failures.
func (s *sender) trouble(err error) {
	if !s.away {
		s.away = true
		s.log.Warn("the collector of traces doesn't take spans; the newest are kept, the others dropped",
			"endpoint", s.endpoint, "kept", queued, "error", err, "hint", "see tracing.endpoint in the configuration")
	}
}

// passing reports whether the request may succeed later, by the list of the OTLP specification.
func passing(err error) bool {
	failed := status.Convert(err)
	switch failed.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return true
	case codes.ResourceExhausted:
		for _, detail := range failed.Details() {
			if _, ok := detail.(*errdetails.RetryInfo); ok {
				return true
			}
		}
	default:
	}
	return false
}
