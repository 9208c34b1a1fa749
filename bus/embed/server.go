package embed

import (
	"cmp"
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
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus"
)

const (
	// maxPending is how much the bus holds for a client that doesn't read, in bytes; beyond it the
	// client is cut off, connects again and is caught up.
	maxPending = 64 << 20
	// maxSubscriptions is how many subjects one connection may listen to: its readers, and one for each call that waits.
	maxSubscriptions = 4096
	// startTimeout bounds the server's start, with the recovery of its store.
	startTimeout = 30 * time.Second
	startLook    = 100 * time.Millisecond
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
	// Told is called with nil each time the service begins, and with an error when the store can't be written. It may be
	// nil.
	Told func(trouble error)
	// InProcess is given the way to connect from this process, for as long as it works. It may be nil.
	InProcess func(connect func() (net.Conn, error)) (end func())
	// Group finds the ID of a group: kubelot may connect, and kubelot-<daemon> has the daemon's key. It is the machine's
	// if it is nil. The error is a user.UnknownGroupError where there is no such group.
	Group func(name string) (gid int, err error)
	Log   *slog.Logger
	// Metrics is where the store and the readers are shown; nil means nowhere.
	Metrics prometheus.Registerer
	// Pulse receives work only while the embedded server answers; the daemon's beats depend on it. It may be nil.
	Pulse <-chan func()
	// compactEvery is how often the store's files are compacted, if not every half minute.
	compactEvery time.Duration
	// rollEvery is how often the roller looks at the states, if not every 20 s.
	rollEvery time.Duration
}

// compactEvery is how often the server compacts files of which half is unused, and drops the notes of what
// it has removed. It does both when it syncs its files. A tmpfs needs no sync, but without it each removed pod leaves
// some 2 KiB in the store.
const compactEvery = 30 * time.Second

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
	ready   chan struct{}
	opened  func() // closes ready
	pace    pace   // of the lives
	metrics *metrics
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
	if o.Group == nil {
		o.Group = lookupGroup
	}
	if o.InProcess == nil {
		o.InProcess = func(func() (net.Conn, error)) func() { return func() {} }
	}
	s := &Server{options: o, ready: make(chan struct{}), metrics: newMetrics()}
	if o.Metrics != nil {
		if err := o.Metrics.Register(s.metrics); err != nil {
			return nil, fmt.Errorf("start the bus: register its metrics: %w", err)
		}
	}
	s.opened = sync.OnceFunc(func() { close(s.ready) })
	if o.Listen == "" {
		return s, nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("start the bus: --listen %q: %w", o.Listen, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("start the bus: --listen %q is not a loopback address; the bus isn't encrypted, use 127.0.0.1",
			o.Listen)
	}
	if _, err = strconv.ParseUint(port, 10, 16); err != nil {
		return nil, fmt.Errorf("start the bus: --listen %q: the port must be a number up to 65535", o.Listen)
	}
	return s, nil
}

// Ready is closed once clients can connect.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, and then stops in order. A store that could not be written is opened again when there is
// room.
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
			s.options.Log.Warn("can't go on with the bus's store, creating a new one; the daemons publish their state again",
				"store", s.options.StoreDir, "error", err)
			if err := s.discard(); err != nil {
				return err
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
	if err := canGoOn(s.options.StoreDir); err != nil {
		return err
	}
	log := newNatsLog(s.options.Log)
	space, err := spaceOf(s.options.StoreDir)
	if err != nil {
		return err
	}
	limits := limitsFor(space)
	ns, names, err := s.start(own.public, log)
	if err != nil {
		return err
	}
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	states := newBound(limits.state)
	s.metrics.alive(serving{server: ns, names: names, states: states})
	defer s.metrics.alive(serving{})
	own.server = ns
	if s.admin == nil {
		s.admin = own
	}
	err = own.do(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		// A store that can't be adapted is thrown away. The client's own limit is 5 s for each question, and a disk may stand
		// still for longer.
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
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
	if err := replaceKeys(ctx, recorder, states, s.options.Log); err != nil {
		return err
	}
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	// Clients in this process need no gate: they share its memory.
	defer s.options.InProcess(func() (net.Conn, error) { return connectInProcess(ns) })()
	gate := &gate{server: ns, members: names, log: s.options.Log}
	group, ctx := errgroup.WithContext(ctx)
	for _, listener := range listeners {
		group.Go(func() error { return gate.run(ctx, listener) })
	}
	group.Go(func() error { return s.guard(ctx, own, log) })
	group.Go(func() error { s.roll(ctx, own, states); return nil })
	group.Go(func() error { pulse(ctx, asker(recorder), s.options.Pulse); return nil })
	s.opened()
	s.options.Told(nil)
	s.options.Log.Info("the bus is up", "socket", s.options.Socket, "store", s.options.StoreDir,
		"listen", s.options.Listen)
	err = group.Wait()
	gate.joined.Wait()
	s.options.Log.Info("the bus is stopping")
	return err
}

// start starts the embedded server and recovers its store. ownKey is the bus's own user, who may do all.
func (s *Server) start(ownKey string, log *natsLog) (*server.Server, map[string]string, error) {
	users, names, err := s.users()
	if err != nil {
		return nil, nil, err
	}
	users = append(users, &server.NkeyUser{Nkey: ownKey})
	o := &server.Options{
		ServerName: "kubelot-bus",
		DontListen: true, // the gate does
		NoSigs:     true, DisableJetStreamBanner: true,
		MaxPayload: bus.MaxPayload, MaxPending: maxPending, MaxSubs: maxSubscriptions,
		PingInterval: 5 * time.Minute, MaxPingsOut: 2, WriteDeadline: 10 * time.Second,
		Nkeys:     users,
		JetStream: true, StoreDir: s.options.StoreDir,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: maxStore,
		SyncInterval: cmp.Or(s.options.compactEvery, compactEvery),
	}
	ns, err := server.NewServer(o)
	if err != nil {
		return nil, nil, fmt.Errorf("start the bus: %w", err)
	}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	if !comesUp(ns, log) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		err := fmt.Errorf("start the bus: the embedded server did not start: %w; is there space in %s?",
			log.lastError(), s.options.StoreDir)
		if room(s.options.StoreDir) {
			err = fmt.Errorf("%w: %w", errOtherStore, err) // space is not what it lacks
		}
		return nil, nil, err
	}
	return ns, names, nil
}

// comesUp waits until the server can be connected to; false when it says that it never will, or takes too long.
func comesUp(ns *server.Server, log *natsLog) bool {
	for began := time.Now(); time.Since(began) < startTimeout; {
		if ns.ReadyForConnections(startLook) {
			return true
		}
		if log.fatal() {
			return false
		}
	}
	return false
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
