// Package recording is the format of recordings of the bus: what kubelot tap --record writes, and what kubelot replay,
// why --replay and the check read.
//
// A recording is a file of JSON lines. The first is a Header, each other a Record. It begins with what the bus had
// retained before, so that a reader knows the state that the first message is about.
//
// # Guarantees
//
//   - Every recording of an earlier release can be read. Fields are only ever added.
//   - A file that isn't a recording, or one of a later format, is an error that names the line.
//   - A line is written whole or not at all, as far as the filesystem allows.
package recording

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"kubelot.dev/bus"
)

const (
	// magic is in the first line of each recording.
	magic = "recording"
	// formatVersion is that of the recordings that are written. It changes only when fields change their meaning or go.
	formatVersion = 1
)

// Header is the first line of a recording.
type Header struct {
	Format  string `json:"kubelot"`
	Version int    `json:"version"`
	// Created is when the recording began, From when its oldest message may be from.
	Created time.Time `json:"created"`
	From    time.Time `json:"from"`
	// Kubelot is the version of the program that wrote it.
	Kubelot string `json:"kubelotVersion,omitempty"`
	// Settings are those of the node's configuration that decisions depend on, by the names of kubelot config check.
	// They are absent in recordings of earlier releases, and where the configuration could not be found.
	Settings map[string]any `json:"settings,omitempty"`
}

// Record is one message in a recording, a line.
type Record struct {
	Time    time.Time `json:"time"`
	Subject string    `json:"subject"`
	Daemon  string    `json:"daemon,omitempty"`
	Schema  string    `json:"schema,omitempty"`
	// Retained messages aren't part of what was shown: the bus had them before. They say what the state was.
	Retained bool `json:"retained,omitempty"`
	Deleted  bool `json:"deleted,omitempty"`
	// Garbled messages are no JSON. Their data is left out.
	Garbled bool            `json:"garbled,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Of is the record of a message with other data: what is hidden in a recording is hidden before. A nil payload of a
// message that isn't a tombstone means that it is garbled.
func Of(m bus.Message, data json.RawMessage, retained bool) Record {
	r := Record{
		Time: m.Time, Subject: m.Subject, Daemon: m.Header[bus.HeaderDaemon], Schema: m.Header[bus.HeaderSchema],
		Retained: retained, Deleted: m.Tombstone(),
	}
	if !r.Deleted {
		r.Data, r.Garbled = data, data == nil
	}
	return r
}

// Message is the inverse of Of, but for what was hidden.
func (r Record) Message() bus.Message {
	m := bus.Message{Subject: r.Subject, Time: r.Time, Data: r.Data, Header: map[string]string{
		bus.HeaderDaemon: r.Daemon,
	}}
	if r.Schema != "" {
		m.Header[bus.HeaderSchema] = r.Schema
	}
	if r.Deleted {
		m.Header[bus.HeaderTombstone] = "1"
	}
	return m
}

// Writer writes a recording.
type Writer struct{ out io.Writer }

// NewWriter writes the header.
func NewWriter(out io.Writer, h Header) (*Writer, error) {
	w := &Writer{out}
	h.Format, h.Version = magic, formatVersion
	return w, w.write(h)
}

// Add writes a record.
func (w *Writer) Add(r Record) error { return w.write(r) }

// write writes a whole line at once, so that a tap that is killed leaves no half of one behind.
func (w *Writer) write(line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if _, err := w.out.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
