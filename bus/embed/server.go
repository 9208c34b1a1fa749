package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus"
)

const (
	// maxPending is how much the bus holds for a client that doesn't read, in bytes; beyond it the
	// client is cut off, connects again and is caught up.
	maxPending = 64 << 20
	// startTimeout bounds the server's start, with the recovery of its store.
	startTimeout = 30 * time.Second
)

// Options say where the bus lives and who may use it.
type Options struct {
	// Socket is the path of the unix socket.
	Socket string
	// StoreDir is where the messages are kept; it should be on a tmpfs.
	StoreDir string
	// KeyDir is where the daemons' private keys are: <daemon>.nk.
	KeyDir string
	// Listen is a loopback TCP address (host:port) for the stock nats CLI; empty for none.
	Listen string
	// Crew is who takes part; BuiltinCrew is the release's.
	Crew Crew
	// Told is told of each beginning of the service (nil), and why the store can't be written. It may be nil.
	Told func(trouble error)
	// InProcess is told how this process connects, for as long as that can be done. It may be nil.
	InProcess func(connect func() (net.Conn, error)) (end func())
	Log       *slog.Logger
}

// DefaultOptions is a bus under the run directory, such as /run/kubelot.
func DefaultOptions(runDir string) Options {
	return Options{
		Socket:   filepath.Join(runDir, "bus.sock"),
		StoreDir: filepath.Join(runDir, "bus"),
		KeyDir:   filepath.Join(runDir, "keys"),
	}
}

// Server is the bus.
type Server struct {
	options Options
	host    string
	port    int
	ready   chan struct{}
	opened  func() // closes ready
	pace    pace   // of the lives
	admin   *admin // the first life's, set before ready; tests work with it
}

// New checks the options; Run does the rest.
func New(o Options) (*Server, error) {
	switch {
	case o.Socket == "", o.StoreDir == "", o.KeyDir == "":
		return nil, errors.New("start the bus: socket, store directory and key directory must be given")
	case o.Log == nil:
		return nil, errors.New("start the bus: the logger is missing")
	case len(o.Crew.Daemons) == 0:
		return nil, errors.New("start the bus: the crew is empty, nobody could connect")
	}
	if o.Told == nil {
		o.Told = func(error) {}
	}
	if o.InProcess == nil {
		o.InProcess = func(func() (net.Conn, error)) func() { return func() {} }
	}
	s := &Server{options: o, ready: make(chan struct{})}
	s.opened = sync.OnceFunc(func() { close(s.ready) })
	if o.Listen == "" {
		return s, nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("start the bus: --listen %q: %w", o.Listen, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("start the bus: --listen %q is not a loopback address; the bus isn't encrypted, use 127.0.0.1", o.Listen)
	}
	s.host = host
	if s.port, err = strconv.Atoi(port); err != nil || s.port < 0 || s.port > 65535 {
		return nil, fmt.Errorf("start the bus: --listen %q: the port must be a number up to 65535", o.Listen)
	}
	if s.port == 0 {
		s.port = server.RANDOM_PORT
	}
	return s, nil
}

// Ready is closed once clients can connect.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, and then stops in order. A store that could not be written is opened anew once there is room.
func (s *Server) Run(ctx context.Context) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	rebuilt := false
	for {
		err := s.serve(ctx)
		switch {
		case errors.Is(err, errRoomAgain):
		case errors.Is(err, errOtherStore) && !rebuilt && ctx.Err() == nil:
			rebuilt = true
			s.options.Log.Warn("the bus's store is of another version and is made again; the daemons say again what they know",
				"store", s.options.StoreDir, "error", err)
			if err := os.RemoveAll(filepath.Join(s.options.StoreDir, "jetstream")); err != nil {
				return fmt.Errorf("start the bus: remove the store of another version: %w", err)
			}
		default:
			return err
		}
	}
}

// serve is one life of the embedded server.
func (s *Server) serve(ctx context.Context) error {
	own, err := newAdmin()
	if err != nil {
		return err
	}
	log := newNatsLog(s.options.Log)
	size, err := space(s.options.StoreDir)
	if err != nil {
		return err
	}
	limits := limitsFor(size)
	ns, err := s.start(own.public, limits, log)
	if err != nil {
		return err
	}
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	own.server = ns
	if s.admin == nil {
		s.admin = own
	}
	err = own.do(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		return prepareStreams(ctx, js, s.options.Crew, limits)
	})
	if err != nil {
		return err
	}
	recorder, err := record(own, s.options.Crew, s.options.Log)
	if err != nil {
		return err
	}
	defer recorder.Close()
	listener, err := listen(ctx, s.options.Socket)
	if err != nil {
		return err
	}
	defer s.options.InProcess(func() (net.Conn, error) { return connectInProcess(ns) })()
	gate := &gate{listener: listener, server: ns, log: s.options.Log}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return gate.run(ctx) })
	group.Go(func() error { return s.guard(ctx, own, log) })
	s.opened()
	s.options.Told(nil)
	s.options.Log.Info("the bus is up", "socket", s.options.Socket, "store", s.options.StoreDir, "listen", s.options.Listen)
	err = group.Wait()
	s.options.Log.Info("the bus stops")
	return err
}

// start starts the embedded server and recovers its store. ownKey is the bus's own user, who may do all.
func (s *Server) start(ownKey string, limits limits, log *natsLog) (*server.Server, error) {
	users, err := s.users()
	if err != nil {
		return nil, err
	}
	users = append(users, &server.NkeyUser{Nkey: ownKey})
	o := &server.Options{
		ServerName: "kubelot-bus",
		DontListen: s.host == "", Host: s.host, Port: s.port,
		NoSigs: true, DisableJetStreamBanner: true,
		MaxPayload: bus.MaxPayload, MaxPending: maxPending,
		PingInterval: 5 * time.Minute, MaxPingsOut: 2, WriteDeadline: 10 * time.Second,
		Nkeys:     users,
		JetStream: true, StoreDir: s.options.StoreDir,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: limits.store,
		// A tmpfs has nothing to sync to.
		SyncInterval: 24 * time.Hour,
	}
	ns, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(startTimeout) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("start the bus: the embedded server doesn't come up: %w; is there space in %s?", log.lastError(), s.options.StoreDir)
	}
	return ns, nil
}

// lock makes sure that this is the only bus on the store.
func (s *Server) lock() (func(), error) {
	for _, dir := range []string{s.options.StoreDir, s.options.KeyDir, filepath.Dir(s.options.Socket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("start the bus: make its directory: %w", err)
		}
	}
	path := filepath.Join(s.options.StoreDir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("start the bus: another kubelot-bus uses %s: stop it first: %w", s.options.StoreDir, err)
	}
	return func() { _ = file.Close() }, nil
}
