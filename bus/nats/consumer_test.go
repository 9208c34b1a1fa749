package nats

import (
	"context"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

// A heartbeat says that nothing is pending, and a request of flow control doesn't.
func TestControl(t *testing.T) {
	heartbeat := func(header, value, reply string) *natsgo.Msg {
		m := natsgo.NewMsg("inbox")
		m.Reply = reply
		m.Header.Set("Status", "100")
		if header != "" {
			m.Header.Set(header, value)
		}
		return m
	}
	for name, c := range map[string]struct {
		m    *natsgo.Msg
		want []string
	}{
		"a heartbeat":             {heartbeat("Nats-Last-Stream", "7", ""), []string{"idle"}},
		"a stalled consumer":      {heartbeat(layout.NATSStalled, "flow", ""), []string{"answer flow"}},
		"a flow control request":  {heartbeat("", "", "flow"), []string{"answer flow"}},
		"a message without stamp": {natsgo.NewMsg("inbox"), []string{"fail"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			note := func(what string) { got = append(got, what) }
			consumer := &consumer{
				reader: reader{
					func(arrival) { note("deliver") }, func() { note("idle") }, func(error) { note("fail") },
				},
				answer: func(subject string) { note("answer " + subject) },
				watch:  time.NewTimer(time.Hour),
			}
			consumer.receive(c.m)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// What a reader waits for may be dropped before it is sent, to make room: then the bus goes idle, and the reader has
// everything that is left.
func TestKeptMessagesThatWereDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rare, busy := newEventSource(nil, "S", "rare", bus.From{}), newEventSource(nil, "S", "busy", bus.From{})
	out, ended := make(chan bus.Delivery), make(chan struct{})
	go func() {
		defer close(ended)
		merge(ctx, []*eventSource{rare, busy}, out)
	}()
	go func() {
		rare.handOver(ctx, arrival{bus.Message{Subject: "rare", Time: time.Unix(1, 0)}, 1, 2})
		rare.markIdle(ctx)
		rare.markIdle(ctx) // and once more later
	}()
	go busy.handOver(ctx, arrival{bus.Message{Subject: "busy", Time: time.Unix(2, 0)}, 9, 0})
	var got []string
	for range 3 {
		d := <-out
		if d.Synced {
			d.Subject = "synced"
		}
		got = append(got, d.Subject)
	}
	if want := []string{"rare", "busy", "synced"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	cancel()
	<-ended
}
