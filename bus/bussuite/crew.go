package bussuite

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"kubelot.dev/bus"
)

// Thing is the payload of the suite's topics.
type Thing struct {
	N    int    `json:"n"`
	Text string `json:"text,omitempty"`
}

// Reply is the reply of the suite's call.
type Reply struct {
	Sum int `json:"sum"`
}

// The suite's topics.
var (
	Things = bus.NewState[Thing](bus.Spec{Name: "suite.thing", Keys: "<id>", Schema: 1, Doc: "A thing."})
	Single = bus.NewState[Thing](bus.Spec{Name: "suite.single", Schema: 1, Doc: "The only one of its kind."})
	Secret = bus.NewState[Thing](bus.Spec{
		Name: "suite.secret", Keys: "<id>", Schema: 1,
		Doc: "A thing that only its writer reads.",
	})
	News   = bus.NewEvent[Thing](bus.Spec{Name: "suite.news", Keys: "<id>", Schema: 1, Doc: "Something happened."})
	Sum    = bus.NewCall[Thing, Reply](bus.Spec{Name: "suite.sum", Schema: 1, Doc: "Adds one."})
	Nobody = bus.NewCall[Thing, Reply](bus.Spec{Name: "suite.nobody", Schema: 1, Doc: "A call that nobody serves."})
	Own    = bus.NewState[Thing](bus.Spec{
		Name: "suite.own", Keys: "<daemon>", Schema: 1, PerDaemon: true,
		Doc: "Each daemon's own.",
	})
)

// Topics are the suite's topics.
func Topics() []bus.Topic { return []bus.Topic{Things, Single, Secret, News, Sum, Nobody, Own} }

// Contracts are the suite's crew: "writer" writes and serves, "reader" reads and calls.
func Contracts() []bus.Contract {
	return []bus.Contract{
		{Daemon: "writer", Writes: []bus.Topic{Things, Single, Secret, News}, Serves: []bus.Topic{Sum}},
		{Daemon: "reader", Reads: []bus.Topic{Things, Single, News, Own}, Calls: []bus.Topic{Sum, Nobody}},
	}
}

// logBook is a slog handler that remembers.
type logBook struct {
	mu    *sync.Mutex
	lines *[]string
	attrs []slog.Attr
}

func newLog() *logBook { return &logBook{mu: &sync.Mutex{}, lines: &[]string{}} }

func (l *logBook) Enabled(context.Context, slog.Level) bool { return true }

func (l *logBook) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	add := func(a slog.Attr) bool { line += " " + a.String(); return true }
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.lines = append(*l.lines, line)
	return nil
}

func (l *logBook) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logBook{mu: l.mu, lines: l.lines, attrs: append(append([]slog.Attr{}, l.attrs...), attrs...)}
}

func (l *logBook) WithGroup(string) slog.Handler { return l }

// count is the number of lines that contain all the words.
func (l *logBook) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
lines:
	for _, line := range *l.lines {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		count++
	}
	return count
}
