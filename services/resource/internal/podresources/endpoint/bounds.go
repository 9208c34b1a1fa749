package endpoint

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// qps and burst bound the requests of all clients of an API together, as the kubelet does.
	qps   = 100
	burst = 10
	// maxConnections is far more than the few agents of a node need.
	maxConnections = 128
	// maxStreams bounds the requests at a time on one connection.
	maxStreams = 64
	// maxRequest, maxHeader and maxAnswer bound sizes in bytes. A request has two names at most. The usual clients take
	// answers of up to 16 MiB.
	maxRequest = 64 << 10
	maxHeader  = 16 << 10
	maxAnswer  = 64 << 20
	// refusalEvery is how often it is logged that connections are refused.
	refusalEvery = time.Minute
)

// errLimited has the kubelet's text.
var errLimited = status.Error(codes.ResourceExhausted, "rejected by rate limit")

// Limiter reports whether a request may be handled now; rate.Limiter of golang.org/x/time is one.
type Limiter interface {
	Allow() bool
}

// limitUnary refuses requests that are too many.
func limitUnary(limiter Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limiter.Allow() {
			return nil, errLimited
		}
		return handle(ctx, req)
	}
}

// limitStream refuses streams that are too many, since the beginning of one may cost as much as a request.
func limitStream(limiter Limiter) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if !limiter.Allow() {
			return errLimited
		}
		return handle(server, stream)
	}
}

// bounded is a listener with a limit of connections. Those above it are closed at once: their clients hear of it, which
// they would not if they had to wait.
type bounded struct {
	net.Listener
	limit int
	log   *slog.Logger

	mu     sync.Mutex
	open   int
	logged time.Time
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.enter(time.Now()) {
			return &counted{Conn: conn, leave: sync.OnceFunc(b.leave)}, nil
		}
		_ = conn.Close()
	}
}

// enter counts a connection, unless it is one too many.
func (b *bounded) enter(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open < b.limit {
		b.open++
		return true
	}
	if now.Sub(b.logged) >= refusalEvery {
		b.logged = now
		b.log.Warn("connections to an API of the node are refused: there are too many", "limit", b.limit,
			"hint", "does a client open a connection for each request and keep them?")
	}
	return false
}

func (b *bounded) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
}

// counted is a connection of a bounded listener.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
