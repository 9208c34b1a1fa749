package embed

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
	busnats "kubelot.dev/bus/nats"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/mounttest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		runChild(dir)
		return
	}
	mounttest.Enter()
	goleak.VerifyTestMain(m)
}

func TestSuite(t *testing.T) {
	bussuite.Run(t, func(t *testing.T) bussuite.Bus { return startBus(t) })
}

// liveBus is a real bus in a directory of its own.
type liveBus struct {
	options Options
	server  *Server
	stop    context.CancelFunc
	ended   chan error
	// connect is how clients connect, if not by the socket.
	connect func(context.Context) (net.Conn, error)
}

// inProcess has clients connect within the process.
func inProcess(b *liveBus) {
	way := &daemon.InProcess{}
	b.options.InProcess, b.connect = way.Serve, way.Dial
}

// The contract holds as well for clients in the bus's own process, over restarts of the bus.
func TestSuiteInProcess(t *testing.T) {
	bussuite.Run(t, func(t *testing.T) bussuite.Bus { return startBus(t, inProcess) })
}

func startBus(t testing.TB, with ...func(*liveBus)) *liveBus {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kubelot-bus-")
	if err != nil {
		t.Fatal(err)
	}
	b := &liveBus{options: DefaultOptions(dir)}
	b.options.Crew = CrewOf(bussuite.Topics(), bussuite.Contracts())
	b.options.Log = slog.New(slog.DiscardHandler)
	b.options.Group = func(name string) (int, error) { return 0, user.UnknownGroupError(name) }
	for _, f := range with {
		f(b)
	}
	b.start(t)
	t.Cleanup(func() {
		b.halt(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *liveBus) start(t testing.TB) {
	t.Helper()
	s, err := New(b.options)
	if err != nil {
		t.Fatal(err)
	}
	b.server = s
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-b.ended:
		t.Fatalf("the bus doesn't start: %v", err)
	case <-time.After(startTimeout):
		t.Fatal("the bus doesn't start")
	}
}

func (b *liveBus) halt(t testing.TB) {
	t.Helper()
	if b.stop == nil {
		return
	}
	b.stop()
	if err := <-b.ended; err != nil {
		t.Errorf("the bus ended with %v", err)
	}
	b.stop = nil
}

func (b *liveBus) Stop(t *testing.T) { b.halt(t) }

func (b *liveBus) Start(t *testing.T, keepStore bool) {
	t.Helper()
	if !keepStore {
		if err := os.RemoveAll(b.options.StoreDir); err != nil {
			t.Fatal(err)
		}
	}
	b.start(t)
}

func (b *liveBus) dial(t testing.TB, keyFile, daemon string, log *slog.Logger) bus.Transport {
	t.Helper()
	transport, err := busnats.Dial(context.Background(), busnats.Options{
		Socket: b.options.Socket, Connect: b.connect, KeyFile: keyFile, Daemon: daemon, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	return transport
}

func (b *liveBus) Dial(t *testing.T, daemon string, log *slog.Logger) bus.Transport {
	t.Helper()
	return b.dial(t, KeyFile(b.options.KeyDir, daemon), daemon, log)
}

func (b *liveBus) DialWrongKey(t *testing.T, log *slog.Logger) bus.Transport {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "wrong.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return b.dial(t, file, "writer", log)
}
