package traces

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// collector keeps the spans that it is sent.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string
	server  *grpc.Server
	served  chan struct{}

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
	refuse   error
	reject   int64
	hang     chan struct{}
}

// startCollector serves until the test ends.
func startCollector(t *testing.T) *collector {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{address: listener.Addr().String(), server: grpc.NewServer(), served: make(chan struct{})}
	collectorpb.RegisterTraceServiceServer(c.server, c)
	go func() {
		defer close(c.served)
		_ = c.server.Serve(listener)
	}()
	t.Cleanup(func() {
		c.server.Stop()
		<-c.served
	})
	return c
}

func (c *collector) Export(ctx context.Context, r *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	var hang chan struct{}
	if c.set(func(c *collector) { hang = c.hang }); hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	for _, of := range r.GetResourceSpans() {
		c.resource = map[string]string{}
		for _, a := range of.GetResource().GetAttributes() {
			c.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	answer := &collectorpb.ExportTraceServiceResponse{}
	if c.reject > 0 {
		answer.PartialSuccess = &collectorpb.ExportTracePartialSuccess{RejectedSpans: c.reject}
	}
	return answer, nil
}

// set changes how the collector answers.
func (c *collector) set(change func(*collector)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// has waits until the collector has so many spans.
func (c *collector) has(t *testing.T, n int) []*tracepb.Span {
	t.Helper()
	var got []*tracepb.Span
	eventually(t, func() bool {
		c.set(func(c *collector) { got = c.spans })
		return len(got) >= n
	})
	return got
}

// hasNamed waits until the collector has a span of that name.
func (c *collector) hasNamed(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() (found bool) {
		c.set(func(c *collector) {
			found = slices.ContainsFunc(c.spans, func(s *tracepb.Span) bool { return s.GetName() == name })
		})
		return found
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it doesn't come to be")
		}
	}
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running starts a sender to the address; stop ends it and waits. last is how long its last requests may take.
func running(t *testing.T, address string, last time.Duration) (s *sender, log *lines, stop func()) {
	t.Helper()
	log = &lines{}
	s, err := newSender(address, nil, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.lastWithin = last
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx)
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			<-done
		})
	}
	t.Cleanup(stop)
	return s, log, stop
}

func (s *sender) addSome(n int) {
	for i := range n {
		s.add(&tracepb.Span{TraceId: make([]byte, 16), SpanId: []byte{1, 2, 3, 4, 5, 6, byte(i >> 8), byte(i)}, Name: "x"})
	}
}

// While the collector takes none the newest spans are kept, and sent when it is back. Two lines are logged.
func TestACollectorThatIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s, log, _ := running(t, c.address, time.Minute)
	s.addSome(10)
	eventually(t, func() bool { return testutil.ToFloat64(s.sent) == 10 })
	c.set(func(c *collector) { c.refuse = status.Error(codes.Unavailable, "away") })
	s.addSome(1)
	eventually(t, func() bool { return strings.Contains(log.String(), "doesn't take spans") })
	s.addSome(2 * queued)
	c.set(func(c *collector) { c.refuse = nil })
	c.has(t, 10+1+queued)
	eventually(t, func() bool { return strings.Contains(log.String(), "takes spans again") })
	eventually(t, func() bool { return testutil.ToFloat64(s.sent) == 10+1+queued })
	if got := testutil.ToFloat64(s.dropped); got != queued {
		t.Errorf("%g spans were dropped, want %d", got, queued)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines were logged, want 2:\n%s", n, log)
	}
}

// What the collector refuses for good isn't sent again; one that refuses a part of a request says how much.
func TestARefusal(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s, log, _ := running(t, c.address, time.Minute)
	c.set(func(c *collector) { c.refuse = status.Error(codes.InvalidArgument, "no such tenant") })
	s.addSome(3)
	eventually(t, func() bool { return testutil.ToFloat64(s.dropped) == 3 })
	c.set(func(c *collector) { c.refuse, c.reject = nil, 2 })
	s.addSome(5)
	eventually(t, func() bool { return testutil.ToFloat64(s.sent) == 3 && testutil.ToFloat64(s.dropped) == 5 })
	for _, part := range []string{"no such tenant", "takes spans again"} {
		eventually(t, func() bool { return strings.Contains(log.String(), part) })
	}
}

// The last spans are sent when the daemon stops. A collector that hangs, or isn't there, holds that up for two seconds
// at most.
func TestTheEnd(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s, _, stop := running(t, c.address, time.Minute)
	s.addSome(batch + 5)
	stop()
	c.has(t, batch+5)

	hang := make(chan struct{})
	defer close(hang)
	c.set(func(c *collector) { c.hang = hang })
	for _, address := range []string{c.address, "127.0.0.1:1"} {
		s, _, stop = running(t, address, lastWithin)
		s.addSome(3 * batch)
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("the end took %s", took)
		}
		if got := testutil.ToFloat64(s.dropped); got != 3*batch {
			t.Errorf("%g spans count as dropped, want %d", got, 3*batch)
		}
	}
}

func TestAnEndpointThatIsNone(t *testing.T) {
	t.Parallel()
	_, err := newSender("dns://\x00", nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "tracing.endpoint") {
		t.Errorf("error %v, want one that names the field", err)
	}
}
