// Package bustest is the bus in memory, for unit tests. It passes the same suite as the real one
// (package bussuite), so what a test shows with it holds with kubelot-bus.
//
// It uses goroutines, channels and package time only, so that it works inside a bubble of
// testing/synctest: make the Bus inside the bubble, and close its connections before the bubble ends.
//
//	b := bustest.New()
//	conn := b.Conn("podsync")
//	defer conn.Close()
package bustest

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"kubelot.dev/bus"
)

// Bus is one bus that any number of connections share. All its methods may be called at any time.
type Bus struct {
	mu      sync.Mutex
	up      bool
	changed chan struct{} // closed and replaced when up changes
	// store counts the stores: a lost one is followed by another.
	store int
	// log are all messages of the store in order; a message's sequence is its index plus one.
	log       []bus.Message
	last      map[string]int // sequence by subject
	positions map[string]int
	rights    map[string]rights // nil while everything is allowed
	states    map[*stateReader]bool
	events    map[*eventReader]bool
	servers   map[string]map[*server]bool
}

// New is an empty bus that is up and allows everybody everything.
func New() *Bus {
	b := &Bus{
		up: true, changed: make(chan struct{}), store: 1,
		states: map[*stateReader]bool{}, events: map[*eventReader]bool{}, servers: map[string]map[*server]bool{},
	}
	b.empty()
	return b
}

func (b *Bus) empty() {
	b.log, b.last, b.positions = nil, map[string]int{}, map[string]int{}
}

// Conn connects as the daemon. It drops the connection's log; see ConnWithLog.
func (b *Bus) Conn(daemon string) *bus.Conn {
	return b.ConnWithLog(daemon, slog.New(slog.DiscardHandler))
}

// ConnWithLog is Conn with a logger.
func (b *Bus) ConnWithLog(daemon string, log *slog.Logger) *bus.Conn {
	return bus.NewConn(b.Transport(daemon, log), daemon, log)
}

// Transport connects as the daemon, below the typed topics.
func (b *Bus) Transport(daemon string, log *slog.Logger) bus.Transport {
	t := &transport{bus: b, daemon: daemon, log: log}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Restrict holds every daemon to its contract from now on. Topics that each daemon writes are writable
// under the daemon's own name where one of the contracts lists them.
func (b *Bus) Restrict(contracts ...bus.Contract) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rights = rightsOf(contracts)
}

// Disconnect cuts all connections to the bus. Published messages stay.
func (b *Bus) Disconnect() { b.setUp(false) }

// Reconnect brings the bus back.
func (b *Bus) Reconnect() { b.setUp(true) }

// LoseState is a bus that was restarted without its store.
func (b *Bus) LoseState() {
	b.Disconnect()
	b.mu.Lock()
	b.store++
	b.empty()
	b.mu.Unlock()
	b.Reconnect()
}

func (b *Bus) setUp(up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.up == up {
		return
	}
	b.up = up
	close(b.changed)
	b.changed = make(chan struct{})
	if !up {
		return
	}
	for r := range b.states {
		b.syncLocked(r)
	}
	for r := range b.events {
		r.signal()
	}
}

// Retained are the data of all keys' last values by subject; removed keys are left out.
func (b *Bus) Retained() map[string][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	retained := map[string][]byte{}
	for subject, seq := range b.last {
		if m := b.log[seq-1]; !m.Tombstone() {
			retained[subject] = m.Data
		}
	}
	return retained
}

// Stored is the number of messages that were ever stored.
func (b *Bus) Stored() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.log)
}

// storeLocked stores m and hands it to all readers.
func (b *Bus) storeLocked(m bus.Message) {
	m.Time = time.Now()
	m.Header = maps.Clone(m.Header)
	m.Data = append([]byte(nil), m.Data...)
	b.log = append(b.log, m)
	b.last[m.Subject] = len(b.log)
	for r := range b.states {
		b.offerLocked(r, m, len(b.log))
	}
	for r := range b.events {
		r.signal()
	}
}

// matches reports whether the subject is one of the pattern's.
func matches(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return len(have) > i
		case i >= len(have) || token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

func matchesAny(patterns []string, subject string) bool {
	for _, pattern := range patterns {
		if matches(pattern, subject) {
			return true
		}
	}
	return false
}
