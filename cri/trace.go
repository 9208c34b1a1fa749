package cri

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
)

// traceparent is the header that tells a server which span a request belongs to (W3C Trace Context, version 00).
const traceparent = "traceparent"

// Traced returns a context whose calls belong to the span, so that what the runtime traces of them joins the trace. The
// header is written by hand because OpenTelemetry's libraries would cost each process memory (docs/adr/0032).
func Traced(ctx context.Context, trace [16]byte, span [8]byte) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	md = metadata.Join(md) // never nil
	md.Set(traceparent, fmt.Sprintf("00-%x-%x-01", trace, span))
	return metadata.NewOutgoingContext(ctx, md)
}

// SpanOf is the ID of the span that the context's calls belong to, in hexadecimal digits; empty for none.
func SpanOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	for _, header := range md.Get(traceparent) {
		if parts := strings.Split(header, "-"); len(parts) == 4 {
			return parts[2]
		}
	}
	return ""
}
