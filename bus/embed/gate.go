package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"kubelot.dev/bus"
	"kubelot.dev/bus/embed/internal/screen"
	"kubelot.dev/bus/pause"
)

const (
	// acceptPause is how long the gate waits after a failed accept, as when no file descriptor is left.
	acceptPause = 100 * time.Millisecond
	// copyBuffer is the size of the buffer for what the server sends to a client.
	copyBuffer = 16 << 10
	// maxClients bounds all connections, maxPerMember those of one member and those that haven't said who they are. A
	// daemon has one, and for a moment two.
	maxClients, maxPerMember = 512, 64
	// refusalEvery is how often a refusal is logged of one connection.
	refusalEvery = time.Second
)

// errTooMany ends a connection that is one too many.
var errTooMany = errors.New("too many connections")

// listen opens the unix socket, and the TCP port if one is asked for.
func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	socket, err := listenUnix(ctx, s.options.Socket)
	if err != nil {
		return nil, err
	}
	s.share(s.options.Socket, "kubelot", 0o660)
	if s.options.Listen == "" {
		return []net.Listener{socket}, nil
	}
	port, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Listen)
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("open the bus's TCP port: --listen %s: %w", s.options.Listen, err)
	}
	s.options.Log.Info("the bus listens on TCP", "address", port.Addr().String())
	return []net.Listener{socket, port}, nil
}

// listenUnix opens the unix socket in place of one that a killed bus has left behind.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open the bus socket: remove the old one: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the bus socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("open the bus socket: %w", err)
	}
	return listener, nil
}

// gate joins each connection from outside to the embedded server, which listens nowhere itself. What a client sends
// goes through a screen, because the server lets it have answers sent to other clients (docs/adr/0026).
type gate struct {
	server *server.Server
	// members are the names by their public keys.
	members map[string]string
	log     *slog.Logger
	joined  sync.WaitGroup
	seats   seats
}

// run accepts until ctx ends; then every connection is closed, which joined waits for.
func (g *gate) run(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	reported := time.Time{}
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			g.joined.Go(func() { g.join(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on the bus socket: %w", err)
		default:
			if time.Since(reported) > time.Minute {
				reported = time.Now()
				g.log.Error("can't accept a connection on the bus socket, retrying", "error", err,
					"hint", "are file descriptors used up?")
			}
			pause.For(ctx, acceptPause)
		}
	}
}

// join copies both ways until one side ends or ctx does.
func (g *gate) join(ctx context.Context, outside net.Conn) {
	if err := g.seats.take(""); err != nil {
		_ = outside.Close()
		g.log.Warn("a client can't be joined to the bus", "error", err)
		return
	}
	seat := "" // of the connection; its inbound side moves it
	defer func() { g.seats.leave(seat) }()
	inside, err := g.server.InProcessConn()
	if err != nil {
		_ = outside.Close()
		g.log.Warn("can't join a client to the bus", "error", err)
		return
	}
	hangUp := sync.OnceFunc(func() { _, _ = outside.Close(), inside.Close() })
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	var inbound sync.WaitGroup
	inbound.Go(func() {
		defer hangUp()
		g.inbound(inside, outside, &seat)
	})
	pump(outside, inside)
	hangUp()
	inbound.Wait()
}

// inbound copies what the client sends, as far as it may.
func (g *gate) inbound(inside io.Writer, outside io.Reader, seat *string) {
	var reported time.Time
	s := screen.Screen{
		MaxPayload: bus.MaxPayload,
		Admit: func(key string) (string, error) {
			name := g.members[key]
			if name == "" {
				return "", nil // the server says so
			}
			if err := g.seats.take(name); err != nil {
				return "", err
			}
			g.seats.leave(*seat)
			*seat = name
			return name, nil
		},
		Refused: func(member, what string) {
			if time.Since(reported) >= refusalEvery {
				reported = time.Now()
				g.log.Error("a client tried what no daemon does, and the bus refused it", "member", member, "refused", what,
					"hint", "if the daemon is of another version than the bus, restart both; if not, somebody else uses its key")
			}
		},
	}
	err := s.Copy(inside, outside)
	if errors.Is(err, errTooMany) || errors.Is(err, screen.ErrProtocol) {
		g.log.Warn("a client of the bus is disconnected", "member", *seat, "error", err)
	}
}

// pump copies until either side ends; why it ends doesn't matter.
func pump(to io.Writer, from io.Reader) {
	// The wrappers hide ReadFrom and WriteTo, which would bring buffers of their own.
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copyBuffer))
}

// seats counts the connections by member; those that haven't said who they are have no name.
type seats struct {
	mu    sync.Mutex
	taken map[string]int
	all   int
}

// take counts a connection of the member, unless it is one too many.
func (s *seats) take(member string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= maxClients:
		return fmt.Errorf("%w: the bus has %d", errTooMany, s.all)
	case s.taken[member] >= maxPerMember && member == "":
		return fmt.Errorf("%w: %d have not said who they are", errTooMany, s.taken[member])
	case s.taken[member] >= maxPerMember:
		return fmt.Errorf("%w: %s has %d", errTooMany, member, s.taken[member])
	}
	if s.taken == nil {
		s.taken = map[string]int{}
	}
	s.taken[member]++
	s.all++
	return nil
}

func (s *seats) leave(member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.taken[member]--; s.taken[member] == 0 {
		delete(s.taken, member)
	}
}
