package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Call is a topic of requests, each with one reply.
type Call[Req, Resp any] struct{ info }

// NewCall binds a call to the Go types of its request and its reply.
func NewCall[Req, Resp any](spec Spec) Call[Req, Resp] {
	return Call[Req, Resp]{info{Spec: spec, kind: KindCall, payload: reflect.TypeFor[Req]()}}
}

// Do sends the request and waits for the reply until ctx ends. The server's error comes back with its text and its kind
// (see ErrNotFound and others). ErrNoResponder means that no daemon serves the call. ErrDisconnected means that the bus
// was away, or went away before the reply came. Both are of the kind ErrUnavailable. The end of ctx has no kind.
func (t Call[Req, Resp]) Do(ctx context.Context, c *Conn, req Req) (Resp, error) {
	var resp Resp
	data, err := json.Marshal(req)
	if err != nil {
		return resp, fmt.Errorf("encode call %s: %w", t.Name(), err)
	}
	request := Message{Subject: t.Name(), Header: c.header(t), Data: data}
	reply, err := c.transport.Request(ctx, request)
	if err != nil {
		return resp, fmt.Errorf("call %s: %w", t.Name(), err)
	}
	if text := reply.Header[HeaderError]; text != "" {
		return resp, fmt.Errorf("call %s: %w", t.Name(), answered(text, reply.Header[HeaderErrorKind]))
	}
	if err := t.readable(reply, c.daemon); err != nil {
		return resp, fmt.Errorf("call %s: %w", t.Name(), err)
	}
	if err := decode(reply.Data, &resp); err != nil {
		return resp, fmt.Errorf("decode the reply of %s: %w", t.Name(), err)
	}
	return resp, nil
}

// Serve answers requests, each in a goroutine of its own. It blocks until ctx has ended and every request is answered,
// and then returns nil. An error says why it can't serve at all.
func (t Call[Req, Resp]) Serve(ctx context.Context, c *Conn, handle func(context.Context, Req) (Resp, error)) error {
	return c.transport.Serve(ctx, t.Name(), func(ctx context.Context, m Message) Message {
		resp, err := t.answer(ctx, m, c.daemon, handle)
		reply := Message{Header: c.header(t), Data: resp}
		if err != nil {
			reply.Header[HeaderError], reply.Header[HeaderErrorKind] = headerText(err.Error()), kindName(ctx, err)
		}
		return reply
	})
}

// maxErrorText is how much of an error's text goes with a reply, in bytes. The bus hangs up on a daemon that sends more
// headers than it takes.
const maxErrorText = 8 << 10

// headerText is a text as a header may have it.
func headerText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}

func (t Call[Req, Resp]) answer(ctx context.Context, m Message, server string,
	handle func(context.Context, Req) (Resp, error),
) ([]byte, error) {
	var req Req
	if err := t.readable(m, server); err != nil {
		return nil, WithKind(ErrInvalid, err)
	}
	if err := decode(m.Data, &req); err != nil {
		return nil, WithKind(ErrInvalid, fmt.Errorf("decode the request: %w", err))
	}
	resp, err := handle(ctx, req)
	if err != nil {
		return nil, err
	}
	return json.Marshal(resp)
}
