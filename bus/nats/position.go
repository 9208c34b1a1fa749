package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

// settleTimeout bounds how long the end of a durable reader waits for the bus.
const settleTimeout = time.Second

// position is how far a durable reader has acknowledged one filter. The bus keeps it as a message of its own, not in a
// durable consumer. So a reader that starts again gets what it hadn't acknowledged at once and in order, not after a
// redelivery time-out. The methods do nothing on a nil position.
type position struct {
	t       *Transport
	subject string

	mu          sync.Mutex
	outstanding []uint64 // delivered, not all acknowledged, ascending
	acked       map[uint64]bool
	done        uint64 // everything up to it is acknowledged; 0 for nothing
	epoch       int    // counts the stores, so that a late acknowledgement doesn't count for another store
}

func newPosition(t *Transport, durable, filter string) *position {
	return &position{
		t: t, acked: map[uint64]bool{},
		subject: strings.Join([]string{"position", t.options.Daemon, token(durable), token(filter)}, "."),
	}
}

// token makes one subject token of any text.
func token(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, text)
}

// load asks the bus for the position of the reader's previous life; 0 means there is none.
func (p *position) load(ctx context.Context, s *session) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reply, err := s.request(ctx, &natsgo.Msg{Subject: "$JS.API.DIRECT.GET." + layout.StreamPosition + "." + p.subject})
	if err != nil {
		return 0, fmt.Errorf("ask the bus for the reader's position %s: %w", p.subject, err)
	}
	switch status := reply.Header.Get("Status"); status {
	case "":
	case "404":
		return 0, nil
	default:
		return 0, fmt.Errorf("ask the bus for the reader's position %s: %s %s", p.subject, status,
			reply.Header.Get("Description"))
	}
	done, err := strconv.ParseUint(string(reply.Data), 10, 64)
	if err != nil {
		p.t.log.Warn("ignoring a reader's position that can't be decoded", "subject", p.subject, "error", err)
		return 0, nil
	}
	return done, nil
}

// deliver notes that seq is about to be handed to the reader.
func (p *position) deliver(seq uint64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding = append(p.outstanding, seq)
}

// withdraw undoes deliver: seq was not handed over.
func (p *position) withdraw(seq uint64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding = slices.DeleteFunc(p.outstanding, func(o uint64) bool { return o == seq })
}

// reset forgets everything: the bus has another store.
func (p *position) reset() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding, p.done = nil, 0
	clear(p.acked)
	p.epoch++
}

// acker is the Ack of the delivery seq.
func (p *position) acker(seq uint64) func() {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	epoch := p.epoch
	return func() { p.ack(epoch, seq) }
}

func (p *position) ack(epoch int, seq uint64) {
	p.mu.Lock()
	if epoch != p.epoch {
		p.mu.Unlock()
		return
	}
	p.acked[seq] = true
	moved := false
	for len(p.outstanding) > 0 && p.acked[p.outstanding[0]] {
		p.done, moved = p.outstanding[0], true
		delete(p.acked, p.done)
		p.outstanding = p.outstanding[1:]
	}
	p.mu.Unlock()
	if moved {
		p.send()
	}
}

// send sends the position to the bus and doesn't wait. If it is lost, the reader gets a few events twice.
func (p *position) send() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, _ := p.t.current()
	if s == nil || p.done == 0 {
		return
	}
	err := s.nc.Publish(p.subject, strconv.AppendUint(nil, p.done, 10))
	if err != nil && !errors.Is(err, natsgo.ErrConnectionClosed) {
		p.t.log.Warn("can't send the reader's position to the bus", "subject", p.subject,
			"error", fmt.Errorf("%w: %w", bus.ErrDisconnected, err))
	}
}

// settle sends the position once more, and waits a moment for it, so that the reader's next life begins where
// this one ended.
func (p *position) settle(ctx context.Context) {
	if p == nil {
		return
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	s, _ := p.t.current()
	if s == nil || done == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	m := &natsgo.Msg{Subject: p.subject, Data: strconv.AppendUint(nil, done, 10)}
	if _, err := s.request(ctx, m); err != nil {
		p.t.log.Debug("the bus did not confirm the reader's position", "subject", p.subject, "error", err)
	}
}
