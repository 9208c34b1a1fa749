package tracing

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// span is one as the collector got it. IDs are in hexadecimal digits.
type span struct {
	service, trace, id, parent, name string
	begin, end                       time.Time
	attributes                       map[string]string
	failure                          string
}

func (s span) String() string {
	return fmt.Sprintf("%s: %s (%s below %q), %s to %s, %v %s", s.service, s.name, s.id, s.parent,
		s.begin.Format(time.TimeOnly+".000"), s.end.Format(time.TimeOnly+".000"), s.attributes, s.failure)
}

// collector is an OTLP collector, which can be stopped and started at the same address.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string
	server  *grpc.Server
	served  chan error

	mu    sync.Mutex
	spans []span
}

// start serves at the address, or at a free one the first time.
func (c *collector) start() error {
	if c.address == "" {
		c.address = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", c.address)
	if err != nil {
		return err
	}
	c.address, c.server, c.served = listener.Addr().String(), grpc.NewServer(), make(chan error, 1)
	collectorpb.RegisterTraceServiceServer(c.server, c)
	go func() { c.served <- c.server.Serve(listener) }()
	return nil
}

func (c *collector) stop() error {
	c.server.Stop()
	return <-c.served
}

// Export keeps the spans.
func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, read(service, s))
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func read(service string, m *tracepb.Span) span {
	s := span{
		service: service, trace: hex.EncodeToString(m.GetTraceId()), id: hex.EncodeToString(m.GetSpanId()),
		parent: hex.EncodeToString(m.GetParentSpanId()), name: m.GetName(), attributes: map[string]string{},
		begin: time.Unix(0, int64(m.GetStartTimeUnixNano())), end: time.Unix(0, int64(m.GetEndTimeUnixNano())),
	}
	for _, a := range m.GetAttributes() {
		s.attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if m.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		s.failure = "failed: " + m.GetStatus().GetMessage()
	}
	return s
}

// all are the spans so far.
func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[:len(c.spans):len(c.spans)]
}

// of are those of a pod's trace, by the pod's UID.
func (c *collector) of(uid string) []span {
	var list []span
	for _, s := range c.all() {
		if s.trace == strings.ReplaceAll(uid, "-", "") {
			list = append(list, s)
		}
	}
	return list
}

// one is the kubelet's span of that name and container; an error unless there is exactly one.
func one(spans []span, name, container string) (found span, err error) {
	n := 0
	for _, s := range spans {
		if s.service == "kubelet" && s.name == name && s.attributes["k8s.container.name"] == container {
			found, n = s, n+1
		}
	}
	if n != 1 {
		return found, fmt.Errorf("%d spans %q of container %q among\n%s", n, name, container, list(spans))
	}
	return found, nil
}

func list(spans []span) string {
	var text strings.Builder
	for _, s := range spans {
		fmt.Fprintln(&text, s)
	}
	return text.String()
}
