package tap

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	// magic is in the first line of each recording.
	magic = "recording"
	// formatVersion is that of the recordings that are written. It changes only when fields change their meaning or go.
	formatVersion = 1
)

// header is the first line of a recording.
type header struct {
	Format  string `json:"kubelot"`
	Version int    `json:"version"`
	// Created is when the recording began, From when its oldest message may be from.
	Created time.Time `json:"created"`
	From    time.Time `json:"from"`
	// Kubelot is the version of the program that wrote it.
	Kubelot string `json:"kubelotVersion,omitempty"`
}

// record is one message in a recording, a line.
type record struct {
	Time    time.Time `json:"time"`
	Subject string    `json:"subject"`
	Daemon  string    `json:"daemon,omitempty"`
	Schema  string    `json:"schema,omitempty"`
	// Retained messages aren't part of what is shown: the bus had them before. They give pods their names.
	Retained bool `json:"retained,omitempty"`
	Deleted  bool `json:"deleted,omitempty"`
	// Garbled messages are no JSON. Their data is left out.
	Garbled bool            `json:"garbled,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// recordOf hides what must not be in a file that is sent to others.
func recordOf(m bus.Message, retained bool) record {
	r := record{
		Time: m.Time, Subject: m.Subject, Daemon: m.Header[bus.HeaderDaemon], Schema: m.Header[bus.HeaderSchema],
		Retained: retained, Deleted: m.Tombstone(),
	}
	if r.Deleted {
		return r
	}
	data, err := redact(m.Data)
	r.Data, r.Garbled = data, err != nil
	return r
}

// message is the inverse of recordOf, but for what was hidden.
func (r record) message() bus.Message {
	m := bus.Message{Subject: r.Subject, Time: r.Time, Data: r.Data, Header: map[string]string{
		bus.HeaderDaemon: r.Daemon, bus.HeaderSchema: r.Schema,
	}}
	if r.Deleted {
		m.Header[bus.HeaderTombstone] = "1"
	}
	return m
}

// recorder writes a recording. A nil recorder writes nothing.
type recorder struct{ out io.Writer }

func newRecorder(out io.Writer, h header) (*recorder, error) {
	r := &recorder{out}
	h.Format, h.Version = magic, formatVersion
	return r, r.write(h)
}

func (r *recorder) add(m bus.Message, retained bool) error {
	if r == nil {
		return nil
	}
	return r.write(recordOf(m, retained))
}

// write writes a whole line at once, so that a tap that is killed leaves no half of one behind.
func (r *recorder) write(line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if _, err := r.out.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// quiet is the pause after which the history counts as complete. The bus marks no end of it.
const quiet = 500 * time.Millisecond

// Collect writes a recording of what the bus keeps since a time, and of what it retains, and returns at its end.
func Collect(ctx context.Context, transport bus.Transport, since time.Time, version string, out io.Writer) error {
	recorder, err := newRecorder(out, header{Created: time.Now(), From: since, Kubelot: version})
	if err != nil {
		return err
	}
	if err := retained(ctx, transport, recorder); err != nil {
		return err
	}
	filters, err := Filter{}.subjects()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	messages := transport.WatchEvents(ctx, filters, bus.From{Since: since})
	for {
		select {
		case d, ok := <-messages:
			if !ok {
				return context.Cause(ctx)
			}
			if d.Time.After(begun) {
				return nil
			}
			if err := recorder.add(d.Message, false); err != nil {
				return err
			}
		case <-time.After(quiet):
			return nil
		}
	}
}

// retained records the last message of each key.
func retained(ctx context.Context, transport bus.Transport, recorder *recorder) error {
	var filters []string
	for _, t := range topic.All() {
		if t.Kind() == bus.KindState {
			filters = append(filters, bus.Filter(t))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for d := range transport.WatchState(ctx, filters) {
		if d.Synced {
			return nil
		}
		if err := recorder.add(d.Message, true); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
