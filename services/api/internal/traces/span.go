package traces

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"kubelot.dev/bus/topic"
)

// The names of a pod's own spans. Those of its steps have the names of the steps.
const (
	spanPod = "pod"
	spanEnd = "pod end"
)

// maxError is how many bytes of an error a span has.
const maxError = 1024

// ID is a span's; none has no bit set.
type ID [8]byte

var none ID

// Span is what a pod did from one moment to another.
type Span struct {
	Trace      [16]byte
	ID, Parent ID
	Name       string
	Begin, End time.Time
	Pod        topic.Ref
	Container  string
	Image      string
	Failed     bool
	Error      string
}

// parseID reads hexadecimal digits; anything else is none.
func parseID(digits string) ID {
	id, err := hex.DecodeString(digits)
	if err != nil || len(id) != len(none) {
		return none
	}
	return ID(id)
}

func deriveID(parts ...string) ID {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return ID(sum[:])
}

// message is the span in OTLP, with the names of OpenTelemetry's semantic conventions.
func (s *Span) message() *tracepb.Span {
	m := &tracepb.Span{
		TraceId: s.Trace[:], SpanId: s.ID[:], Name: s.Name, Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(s.Begin.UnixNano()), EndTimeUnixNano: uint64(max(s.End.UnixNano(), s.Begin.UnixNano())),
		Attributes: attributes(
			"k8s.namespace.name", s.Pod.Namespace, "k8s.pod.name", s.Pod.Name, "k8s.pod.uid", s.Pod.UID,
			"k8s.container.name", s.Container, "container.image.name", s.Image,
		),
	}
	if s.Parent != none {
		m.ParentSpanId = s.Parent[:]
	}
	if s.Failed {
		text := s.Error[:min(len(s.Error), maxError)]
		m.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: strings.ToValidUTF8(text, "")}
	}
	return m
}

// attributes are those of the names and values, one after the other, that aren't empty.
func attributes(pairs ...string) (list []*commonpb.KeyValue) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: pairs[i+1]}}
			list = append(list, &commonpb.KeyValue{Key: pairs[i], Value: value})
		}
	}
	return list
}
