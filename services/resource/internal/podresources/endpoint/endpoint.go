package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"kubelot.dev/daemon/sleep"
)

const (
	// greeting bounds the handshake of a connection, idle the time without a request.
	greeting = 10 * time.Second
	idle     = 5 * time.Minute
	// askAlive is after which silence a client is asked whether it lives, answerAlive how long it has for the answer.
	askAlive    = time.Minute
	answerAlive = 20 * time.Second
	// farewell is how long requests under way may take at the end.
	farewell = time.Second
)

// Endpoint is an API on a unix socket.
type Endpoint struct {
	// Path is the socket's.
	Path string
	// Register adds the API's services.
	Register func(grpc.ServiceRegistrar)
	// Limiter bounds the requests and streams that begin; nil is the kubelet's limit of qps and burst.
	Limiter Limiter
	// Door is where clients come in; nil for a socket that closes when the daemon sleeps.
	Door *sleep.Door
	Log  *slog.Logger
	// farewell is another time than the constant, for tests.
	farewell time.Duration
}

// Run serves until ctx ends. The error says why the API can't be served.
func (e *Endpoint) Run(ctx context.Context) error {
	listener, s, err := e.open(ctx)
	if err != nil {
		return fmt.Errorf("open the socket %s: %w", e.Path, err)
	}
	server := e.server()
	log := e.Log.With("socket", e.Path)
	var serving sync.WaitGroup
	defer serving.Wait()
	failed := make(chan error, 1)
	serving.Go(func() { failed <- server.Serve(&bounded{Listener: listener, limit: maxConnections, log: log}) })
	log.Info("an API of the node is served")
	select {
	case err = <-failed:
		err = fmt.Errorf("serve the socket %s: %w", e.Path, err)
	case <-ctx.Done():
	}
	if removed := s.remove(); removed != nil {
		log.Warn("the socket of an API can't be removed", "error", removed)
	}
	stop(server, cmp.Or(e.farewell, farewell))
	return err
}

// open opens the socket: the one that was left open while the daemon slept, or a new one.
func (e *Endpoint) open(ctx context.Context) (listener net.Listener, s *socket, err error) {
	listener, err = e.Door.Open(func() (l *net.UnixListener, err error) {
		l, s, err = listen(ctx, e.Path)
		return l, err
	})
	if err != nil || s != nil {
		return listener, s, err
	}
	s = &socket{path: e.Path}
	if s.own, err = os.Lstat(e.Path); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, s, nil
}

func (e *Endpoint) limiter() Limiter {
	if e.Limiter != nil {
		return e.Limiter
	}
	return rate.NewLimiter(qps, burst)
}

func (e *Endpoint) server() *grpc.Server {
	limiter := e.limiter()
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limitUnary(limiter)), grpc.StreamInterceptor(limitStream(limiter)),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxAnswer),
		grpc.ConnectionTimeout(greeting),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idle, Time: askAlive, Timeout: answerAlive,
		}),
	)
	e.Register(server)
	return server
}

// stop ends the server: at once if nothing is under way, and else it leaves some time for that. No handler runs any
// more when it returns, since GracefulStop waits for them, after Stop too.
func stop(server *grpc.Server, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.GracefulStop()
	}()
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		server.Stop()
		<-done
	}
}
