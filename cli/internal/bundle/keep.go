package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"kubelot.dev/cli/recording"
)

// Keep says what is kept of a file that is larger than it may be. All kept lines are whole, if the file has lines.
type Keep int

const (
	// keepBegin keeps the first lines.
	keepBegin Keep = iota
	// keepEnd keeps the last lines.
	keepEnd
	// keepRecording keeps the header of a recording, what was retained, and the newest of the messages.
	keepRecording
)

// keeper takes what is written to it, and keeps a limited part of it.
type keeper interface {
	io.Writer
	// kept is what is kept at the end, and whether that isn't all.
	kept() (data []byte, cut bool)
}

func (k Keep) keeper(limit int) keeper {
	switch k {
	case keepEnd:
		return &ending{limit: limit}
	case keepRecording:
		return &messages{limit: limit}
	default:
		return &beginning{limit: limit}
	}
}

// errFull ends the writing of a part that is too large.
var errFull = errors.New("the file is as large as it may be")

// beginning keeps the beginning of what is written to it. Write is its only way in: one of a buffer's other methods
// would pass the limit by.
type beginning struct {
	data  []byte
	limit int
	full  bool
}

func (b *beginning) Write(p []byte) (int, error) {
	kept := p[:min(len(p), b.limit-len(b.data))]
	b.data = append(b.data, kept...)
	if len(kept) < len(p) {
		b.full = true
		return len(kept), errFull
	}
	return len(p), nil
}

func (b *beginning) kept() ([]byte, bool) {
	if last := bytes.LastIndexByte(b.data, '\n'); b.full && last >= 0 {
		return b.data[:last+1], true
	}
	return b.data, b.full
}

// ending keeps the end of what is written to it.
type ending struct {
	data  []byte
	limit int
	cut   bool
}

func (e *ending) Write(p []byte) (int, error) {
	e.data = append(e.data, p...)
	if len(e.data) > 2*e.limit { // seldom, so that little is moved
		e.shorten()
	}
	return len(p), nil
}

func (e *ending) shorten() {
	surplus := len(e.data) - e.limit
	if surplus <= 0 {
		return
	}
	wholeLine := e.data[surplus-1] == '\n'
	e.data, e.cut = append(e.data[:0], e.data[surplus:]...), true
	if next := bytes.IndexByte(e.data, '\n'); !wholeLine && next >= 0 && next < len(e.data)-1 {
		e.data = append(e.data[:0], e.data[next+1:]...)
	}
}

func (e *ending) kept() ([]byte, bool) {
	e.shorten()
	return e.data, e.cut
}

// retainedShare is how much of the limit of a recording is for what was retained, in percent: the rest is for what
// happened last.
const retainedShare = 75

// messages keeps a recording, which the writer gives line by line.
type messages struct {
	limit    int
	header   []byte
	retained []byte
	history  [][]byte
	size     int // of the history
	cut      bool
	partial  []byte
}

func (m *messages) Write(p []byte) (int, error) {
	rest := append(m.partial, p...)
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			break
		}
		m.line(append(bytes.Clone(line), '\n'))
		rest = after
	}
	m.partial = bytes.Clone(rest)
	return len(p), nil
}

func (m *messages) line(line []byte) {
	var record struct {
		Retained bool `json:"retained"`
	}
	switch err := json.Unmarshal(line, &record); {
	case m.header == nil:
		m.header = line
	case err == nil && record.Retained:
		if len(m.header)+len(m.retained)+len(line) > m.limit*retainedShare/100 {
			m.cut = true
			return
		}
		m.retained = append(m.retained, line...)
	default:
		m.history, m.size = append(m.history, line), m.size+len(line)
		m.forget()
	}
}

// forget drops the oldest messages that there is no room for.
func (m *messages) forget() {
	for len(m.history) > 0 && len(m.header)+len(m.retained)+m.size > m.limit-headerGrows {
		m.size -= len(m.history[0])
		m.history[0], m.history, m.cut = nil, m.history[1:], true
	}
}

// headerGrows is how much longer the header may become when it says another time.
const headerGrows = 20

func (m *messages) kept() ([]byte, bool) {
	m.forget()
	header := m.header
	if m.cut {
		header = begunAt(header, m.history)
	}
	data := append(header[:len(header):len(header)], m.retained...)
	for _, line := range m.history {
		data = append(data, line...)
	}
	if len(data) > m.limit { // not even the header fits
		return nil, true
	}
	return data, m.cut
}

// begunAt is the header of a recording whose oldest messages are left out.
func begunAt(header []byte, history [][]byte) []byte {
	var h recording.Header
	first := struct {
		Time time.Time `json:"time"`
	}{}
	if json.Unmarshal(header, &h) != nil {
		return header
	}
	h.From = h.Created
	if len(history) > 0 && json.Unmarshal(history[0], &first) == nil {
		h.From = first.Time
	}
	data, err := json.Marshal(h)
	if err != nil {
		return header
	}
	return append(data, '\n')
}
