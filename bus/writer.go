package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kubelot.dev/bus/internal/backoff"
)

// publishTimeout bounds one publish until the bus has acknowledged it.
const publishTimeout = 5 * time.Second

const (
	// firstRefusal and lastRefusal bound the pause before a message that the bus has refused is sent again. Publish
	// itself waits for a bus that is away, so this is for failures of another kind, such as a store that is full.
	firstRefusal = 50 * time.Millisecond
	lastRefusal  = 5 * time.Second
	// refusedPause is between the refusal of a writer's key that was refused before and the next such try. With many keys
	// it is likely that the bus takes none of them.
	refusedPause = 200 * time.Millisecond
)

// refusal returns the pauses of one message that the bus refuses.
func refusal() wait.Backoff { return backoff.Doubling(firstRefusal, lastRefusal) }

// Writer publishes the values of a state topic. It remembers the last value of each key. Set and Delete never wait for
// the bus. An overwritten value may stay unsent. The last one is sent as soon as the bus takes it, and all of them are
// sent again after a reconnection, also those that an earlier process of the daemon has left on the bus. Keys that only
// the bus has by then are removed. A value that the bus refuses is tried again at growing intervals and doesn't block
// other keys. The methods may be called from several goroutines.
type Writer[T any] struct {
	topic  State[T]
	conn   *Conn
	header map[string]string // of every message that is no tombstone

	mu      sync.Mutex
	values  map[string]*Message // by subject: last value or tombstone; one that was found on the bus has a Time
	found   bool                // what earlier processes had left on the bus is among the values
	order   []string            // unsent subjects, oldest first; those that are held are not in it
	unsent  map[string]bool
	held    map[string]*hold // unsent subjects whose last message was refused
	retry   time.Time        // none of them is tried again before
	late    func()           // see OnLate
	trouble trouble
	wake    chan struct{}
	idle    chan struct{} // closed and replaced when everything was sent
}

// hold is when a refused key is tried again; zero while it is queued for that.
type hold struct {
	backoff wait.Backoff
	until   time.Time
}

// Writer starts the one writer of the topic in this daemon. It ends with the connection.
func (s State[T]) Writer(c *Conn) *Writer[T] {
	w := &Writer[T]{
		topic: s, conn: c, header: c.header(s),
		values: map[string]*Message{}, unsent: map[string]bool{}, held: map[string]*hold{}, late: func() {},
		wake: make(chan struct{}, 1), idle: make(chan struct{}),
	}
	c.flushes(w.Flush)
	c.background(w.run)
	return w
}

// Set makes v the value of key. The error says that v can't be encoded or that key doesn't fit the topic. A bus that is
// away is no error. A value equal to the last one isn't sent again.
func (w *Writer[T]) Set(key string, v T) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", w.topic.Name(), key, err)
	}
	return w.put(key, &Message{Header: w.header, Data: data})
}

// Delete removes the key with a tombstone.
func (w *Writer[T]) Delete(key string) error {
	return w.put(key, w.tombstone())
}

func (w *Writer[T]) tombstone() *Message {
	header := w.conn.header(w.topic)
	header[HeaderTombstone] = "1"
	return &Message{Header: header}
}

// OnLate has f called each time the bus takes a value that it had refused at first. It is for readers that are told of
// a value in another way too, and look for it once. f may not block.
func (w *Writer[T]) OnLate(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = f
}

// Flush waits until everything set so far has been acknowledged, or refused for good, by the bus.
func (w *Writer[T]) Flush(ctx context.Context) error {
	for {
		w.mu.Lock()
		pending, idle := len(w.unsent), w.idle
		w.mu.Unlock()
		if pending == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%d messages of %s are still unsent: %w", pending, w.topic.Name(), context.Cause(ctx))
		}
	}
}

func (w *Writer[T]) put(key string, m *Message) error {
	subject, err := w.topic.subject(key)
	if err != nil {
		return err
	}
	m.Subject = subject
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.values[subject]; last != nil && last.Time.IsZero() && last.Tombstone() == m.Tombstone() &&
		bytes.Equal(last.Data, m.Data) {
		return nil
	}
	w.values[subject] = m
	if m.Tombstone() {
		w.releaseLocked(subject) // it makes room
	}
	w.queueLocked(subject)
	return nil
}

// releaseLocked queues a held key to be tried again at once.
func (w *Writer[T]) releaseLocked(subject string) {
	if h := w.held[subject]; h != nil && !h.until.IsZero() {
		h.until = time.Time{}
		w.order = append(w.order, subject)
	}
}

// dueLocked is the subject of the held key that is due first, and when that is; empty if none is held.
func (w *Writer[T]) dueLocked() (subject string, at time.Time) {
	for each, h := range w.held {
		if !h.until.IsZero() && (subject == "" || h.until.Before(at)) {
			subject, at = each, h.until
		}
	}
	if at.Before(w.retry) {
		at = w.retry
	}
	return subject, at
}

// nextDue fires when the next held key is due; nil if none is held.
func (w *Writer[T]) nextDue() <-chan time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	subject, at := w.dueLocked()
	if subject == "" {
		return nil
	}
	return time.After(time.Until(at))
}

func (w *Writer[T]) queueLocked(subject string) {
	if !w.unsent[subject] {
		w.unsent[subject] = true
		w.order = append(w.order, subject)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer[T]) run(ctx context.Context) {
	connects := w.conn.transport.Connects(ctx)
	var compared comparison
	select {
	case <-connects: // the first: nothing was sent yet, so nothing can have been lost
		w.comparing(ctx, &compared, true)
	case <-ctx.Done():
		return
	}
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-connects:
			if !open {
				connects = nil // the transport was closed; ctx ends this loop
				continue
			}
			w.comparing(ctx, &compared, true)
			w.queueAll()
		case <-compared.again:
			w.comparing(ctx, &compared, false)
		case <-w.wake:
		case <-due:
		}
		w.sendAll(ctx)
		due = w.nextDue()
	}
}

// queueAll marks every value unsent: the bus may have lost what it had acknowledged.
func (w *Writer[T]) queueAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for subject := range maps.Keys(w.values) {
		w.releaseLocked(subject)
		w.queueLocked(subject)
	}
}

func (w *Writer[T]) sendAll(ctx context.Context) {
	for ctx.Err() == nil {
		m := w.next()
		if m == nil {
			return
		}
		err := w.send(ctx, m)
		if err != nil && lasting(err) {
			w.conn.log.Error("the bus can never accept this value, skipping it", "subject", m.Subject, "error", err)
		}
		w.mu.Lock()
		_, refused := w.held[m.Subject]
		w.settleLocked(m, err)
		late, held := w.late, len(w.held)
		w.mu.Unlock()
		if err != nil || held == 0 { // that it takes other keys is no end of the trouble
			w.trouble.note(ctx, w.conn.log, m.Subject, err)
		}
		if refused && err == nil {
			late()
		}
	}
}

func (w *Writer[T]) send(ctx context.Context, m *Message) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return w.conn.transport.Publish(ctx, *m)
}

// next is the oldest unsent message. If there is none, it is that of a held key that is due, or nil.
func (w *Writer[T]) next() *Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		subject, at := w.dueLocked()
		if subject == "" || time.Now().Before(at) {
			return nil
		}
		w.releaseLocked(subject)
	}
	return w.values[w.order[0]]
}

// settleLocked takes m off the queue after it was sent or refused for good. A newer value of its key stays queued.
// After any other failure the key is held back.
func (w *Writer[T]) settleLocked(m *Message, err error) {
	if w.order = w.order[1:]; len(w.order) == 0 {
		w.order = nil // lets go of what a burst has allocated
	}
	h := w.held[m.Subject]
	if err != nil && !lasting(err) {
		if h == nil {
			h = &hold{backoff: refusal()}
			w.held[m.Subject] = h
		} else {
			w.retry = time.Now().Add(refusedPause)
		}
		h.until = time.Now().Add(h.backoff.Step())
		if newer := w.values[m.Subject]; newer != m && newer.Tombstone() {
			w.releaseLocked(m.Subject) // it makes room
		}
		return
	}
	if h != nil {
		delete(w.held, m.Subject)
		w.retry = time.Time{} // there may be room for others
	}
	delete(w.unsent, m.Subject)
	switch {
	case w.values[m.Subject] != m:
		w.queueLocked(m.Subject)
	case m.Tombstone() && w.found:
		delete(w.values, m.Subject)
	}
	if len(w.unsent) == 0 {
		close(w.idle)
		w.idle = make(chan struct{})
	}
}

// trouble logs once that the bus is there but refuses messages, for example because its store is full.
type trouble struct{ told bool }

func (t *trouble) note(ctx context.Context, log *slog.Logger, subject string, err error) {
	switch {
	case err == nil && t.told:
		t.told = false
		log.Info("the bus accepts messages again", "subject", subject)
	case err == nil, lasting(err), errors.Is(err, ErrDisconnected), ctx.Err() != nil, t.told:
	default:
		t.told = true
		log.Warn("the bus did not accept a message, retrying", "subject", subject, "error", err)
	}
}
