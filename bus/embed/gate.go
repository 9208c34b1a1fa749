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
)

const (
	// acceptPause is how long the gate waits after a failed accept, as when no file descriptor is left.
	acceptPause = 100 * time.Millisecond
	// copyBuffer is the size of the buffer in each direction of a connection.
	copyBuffer = 16 << 10
)

// listen opens the unix socket in place of one that a killed bus has left behind.
func listen(ctx context.Context, path string) (net.Listener, error) {
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

// gate joins each connection on the unix socket to the embedded server, which has no such listener itself.
type gate struct {
	listener net.Listener
	server   *server.Server
	log      *slog.Logger
	joined   sync.WaitGroup
}

// run accepts until ctx ends; then it closes every connection and waits for them.
func (g *gate) run(ctx context.Context) error {
	defer g.joined.Wait()
	stop := context.AfterFunc(ctx, func() { _ = g.listener.Close() })
	defer stop()
	reported := time.Time{}
	for {
		conn, err := g.listener.Accept()
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
				g.log.Error("can't accept a connection on the bus socket, trying again", "error", err, "hint", "are file descriptors used up?")
			}
			pause(ctx, acceptPause)
		}
	}
}

// join copies both ways until one side ends or ctx does.
func (g *gate) join(ctx context.Context, outside net.Conn) {
	inside, err := g.server.InProcessConn()
	if err != nil {
		_ = outside.Close()
		g.log.Warn("a client can't be joined to the bus", "error", err)
		return
	}
	hangUp := sync.OnceFunc(func() { _, _ = outside.Close(), inside.Close() })
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	var inbound sync.WaitGroup
	inbound.Go(func() {
		defer hangUp()
		pump(inside, outside)
	})
	pump(outside, inside)
	hangUp()
	inbound.Wait()
}

// pump copies until either side ends; why it ends doesn't matter.
func pump(to io.Writer, from io.Reader) {
	// The wrappers hide ReadFrom and WriteTo, which would bring buffers of their own.
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copyBuffer))
}

// pause waits for d or the context's end.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
