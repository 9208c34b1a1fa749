package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

const (
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

// levelColour colours the level's letter.
var levelColour = map[slog.Level]string{
	slog.LevelDebug: "\x1b[2mD\x1b[0m",
	slog.LevelInfo:  "\x1b[32mI\x1b[0m",
	slog.LevelWarn:  "\x1b[33mW\x1b[0m",
	slog.LevelError: "\x1b[31mE\x1b[0m",
}

// humanHandler writes log lines for a terminal: time, level's letter, message, dimmed attributes.
type humanHandler struct {
	out    *lockedWriter
	level  slog.Leveler
	prefix string // rendered attributes of With
	group  string
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(data)
}

func newHumanHandler(w io.Writer, level slog.Leveler) *humanHandler {
	return &humanHandler{out: &lockedWriter{w: w}, level: level}
}

func (h *humanHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle writes one line.
func (h *humanHandler) Handle(_ context.Context, r slog.Record) error {
	var line bytes.Buffer
	letter, ok := levelColour[r.Level]
	if !ok {
		letter = r.Level.String()
	}
	line.WriteString(dim + r.Time.Format("15:04:05.000") + plain + " " + letter + " " + r.Message + h.prefix)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&line, h.group, a)
		return true
	})
	line.WriteByte('\n')
	_, err := h.out.Write(line.Bytes())
	return err
}

func (h *humanHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var text bytes.Buffer
	for _, a := range attrs {
		writeAttr(&text, h.group, a)
	}
	next := *h
	next.prefix += text.String()
	return &next
}

func (h *humanHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.group += name + "."
	return &next
}

func writeAttr(line *bytes.Buffer, group string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range value.Group() {
			writeAttr(line, group, member)
		}
		return
	}
	if a.Key == "" {
		return
	}
	text := value.String()
	if text == "" || strings.ContainsAny(text, " \t\r\n\"=\x1b") {
		text = strconv.Quote(text)
	}
	line.WriteString(" " + dim + group + a.Key + "=" + plain + text)
}
