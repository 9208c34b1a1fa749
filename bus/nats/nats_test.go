package nats

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/bus"
)

// The transport as a whole is tested with the real server, in bus/embed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOverlap(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"a.b", "a.b", true},
		{"a.*", "a.b", true},
		{"a.*", "*.b", true},
		{">", "a.b.c", true},
		{"a.>", "a.b.c", true},
		{"a.b", "a.b.c", false},
		{"a.*", "a.b.c", false},
		{"a.b.*", "a.c.*", false},
	}
	for _, test := range tests {
		if overlap(test.a, test.b) != test.want || overlap(test.b, test.a) != test.want {
			t.Errorf("%s and %s: want %v", test.a, test.b, test.want)
		}
	}
}

func TestDialChecksItsOptions(t *testing.T) {
	good := Options{Socket: "/x", KeyFile: "/k", Daemon: "d", Log: slog.New(slog.DiscardHandler)}
	for name, spoil := range map[string]func(*Options){
		"no address":    func(o *Options) { o.Socket = "" },
		"two addresses": func(o *Options) { o.Server = "127.0.0.1:4222" },
		"no daemon":     func(o *Options) { o.Daemon = "" },
		"no key":        func(o *Options) { o.KeyFile = "" },
		"no logger":     func(o *Options) { o.Log = nil },
	} {
		o := good
		spoil(&o)
		if _, err := Dial(context.Background(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Without a bus, a key or a socket the transport waits, says once what is missing, and closes at once.
func TestNoBus(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged.nk")
	if err := os.WriteFile(damaged, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ keyFile, want string }{
		"no key yet":    {"/nonexistent/d.nk", "is kubelot-bus running?"},
		"a damaged key": {damaged, "holds no usable key"},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			transport, err := Dial(context.Background(), Options{
				Socket: "/nonexistent/bus.sock", KeyFile: test.keyFile, Daemon: "d", Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			changes := transport.WatchState(ctx, []string{"a.*"})
			if err := transport.Publish(ctx, bus.Message{Subject: "a.b"}); !errors.Is(err, bus.ErrDisconnected) {
				t.Errorf("publish: got %v, want that the bus isn't reachable", err)
			}
			if _, err := transport.Request(ctx, bus.Message{Subject: "c"}); !errors.Is(err, bus.ErrDisconnected) {
				t.Errorf("request: got %v, want that the bus isn't reachable", err)
			}
			for range changes {
			}
			for end := time.Now().Add(time.Minute); log.String() == "" && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			transport.Close()
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) {
				t.Errorf("logged %q, want one line with %q", got, test.want)
			}
		})
	}
}
