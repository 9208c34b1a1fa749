package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/kube"
	"kubelot.dev/services/api/internal/auth"
	"kubelot.dev/services/api/internal/crowd"
)

const (
	// idleTimeout and maxHeader are the kubelet's; a request's header has to come in headerTimeout.
	idleTimeout   = 90 * time.Second
	maxHeader     = 1 << 20
	headerTimeout = 30 * time.Second
	// openHeader bounds a request's header where nobody has to say who they are: no such request needs a token or a
	// command.
	openHeader = 16 << 10
	// stopGrace is how long answers may take that are under way when the daemon stops.
	stopGrace = time.Second
	// requestTimeout bounds a request and its answer where neither lasts; what is left unread of a request has to come in
	// drainTimeout.
	requestTimeout = time.Minute
	drainTimeout   = 5 * time.Second
	// bindRetry is how soon a healthz port that is taken is tried again.
	bindRetry = 5 * time.Second
	// streamsPerConnection bounds the requests side by side on one HTTP/2 connection. A client that has not acknowledged a
	// ping for pingAfter and pingTimeout is gone.
	streamsPerConnection   = 100
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
)

// crowdLimits keep the daemon well below the MemoryMax of kubelot-api.service. A connection with a request under way
// takes up to 100 kB, and headers 20 times their size; all that strangers can send is 512 times 8 KiB, and four
// times as much as a request may have (an exec has the command in its URL). A further request on an HTTP/2 connection
// takes 20 kB until it is allowed or its refusal is sent. The API server opens a connection for each exec, so that
// there must be room for a burst of them. Streams of logs share connections: of a stream, too, up to 100 kB are held.
// The answer to a request that doesn't last, such as all metrics, may need several megabytes.
var crowdLimits = crowd.Limits{
	Strangers: 512, Guests: 1024, Patience: headerTimeout,
	Small: 8 << 10, Large: maxHeader + 256<<10, Senders: 4, Requests: 64, Pending: 256,
	Lasts: lasts, Pages: 16, Allowed: 1024,
}

// openLimits are for the servers that everybody may use: healthz, and the read-only port. A client that was answered
// there is known no better than before, so all stay strangers, and a connection has one request only.
var openLimits = crowd.Limits{
	Strangers: 256, Patience: headerTimeout, Small: 4 << 10, Large: openHeader + 16<<10, Senders: 4, Requests: 16,
	Pending: 256,
}

// serve starts the listeners that the configuration asks for. Their errors go to s.failed.
func (s *Service) serve(ctx context.Context) {
	k := s.env.Config.Kubelet
	if port := *k.HealthzPort; port > 0 {
		s.loop.Go(func() { s.serveHealthz(ctx, address(k.HealthzBindAddress, port)) })
	}
	if *k.EnableServer {
		s.begin(ctx, s.serveHTTPS)
	}
	if k.ReadOnlyPort > 0 { // also alone, as with the kubelet
		s.begin(ctx, func(ctx context.Context) error {
			return s.listen(ctx, site{address: address(k.Address, k.ReadOnlyPort), open: true}, open(s.readOnly()))
		})
	}
}

func (s *Service) begin(ctx context.Context, work func(context.Context) error) {
	s.loop.Go(func() {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			select {
			case s.failed <- err:
			case <-ctx.Done():
			}
		}
	})
}

func address(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// serveHealthz goes on trying where the port is taken: an agent that is being replaced may hold it.
func (s *Service) serveHealthz(ctx context.Context, addr string) {
	mux := http.NewServeMux()
	s.healthz(mux)
	taken := false
	for {
		err := s.listen(ctx, site{address: addr, open: true, bound: func() {
			if taken {
				s.env.Health.Set(topic.Healthy, "")
			}
		}}, open(mux))
		if ctx.Err() != nil {
			return
		}
		taken = true
		s.env.Health.Set(topic.Degraded, fmt.Sprintf("can't serve healthz: %v", err))
		pause.For(ctx, bindRetry)
	}
}

// serveHTTPS serves the node's API once there are credentials for the API server, where there is one.
func (s *Service) serveHTTPS(ctx context.Context) error {
	c := s.env.Config
	var client kubernetes.Interface
	if !c.Standalone() {
		options := kube.Options{
			Daemon: "api", Version: daemon.Version(), ContentType: c.Kubelet.ContentType, Certificate: c.ClientCertificate,
			Log: s.env.Log,
		}.WithLimits(c.Kubelet.KubeAPIQPS, c.Kubelet.KubeAPIBurst)
		connection, err := kube.WaitClient(ctx, c.Kubeconfig, options)
		if err != nil {
			return err
		}
		defer connection.Close()
		if client, err = kubernetes.NewForConfigAndClient(connection.Config()); err != nil {
			return fmt.Errorf("client of the API server: %w", err)
		}
	}
	guard, err := auth.New(c.Kubelet, s.rules, client, s.env.Log)
	if err != nil {
		return err
	}
	config, stop, err := s.tlsConfig(ctx, client)
	if err != nil {
		return err
	}
	defer stop()
	if guard.ClientCA != nil {
		config.ClientAuth = tls.RequestClientCert
	}
	s.loop.Go(func() { guard.Run(ctx) })
	at := site{address: address(c.Kubelet.Address, c.Kubelet.Port), tls: config}
	return s.listen(ctx, at, func(inside middleware) http.Handler {
		return s.metrics.count("readwrite", guard.Filter(inside(s.traces.Handler(s.routes(), spanName))))
	})
}

// spanName is the name of a request's span: few paths, since the others have names of pods.
func spanName(r *http.Request) string { return method(r.Method) + " /" + bucket(r.URL.Path) }

// middleware is put around a handler.
type middleware = func(http.Handler) http.Handler

// open is a handler that everybody may reach, of a site that is open.
func open(handler http.Handler) func(middleware) http.Handler {
	return func(middleware) http.Handler { return handler }
}

// bounded gives each request a time in which it has to be read and answered, except for those that last. What a client
// never sends is not waited for either way: net/http reads the rest of every request.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if !lasts(r) {
			end := time.Now().Add(requestTimeout)
			_ = errors.Join(control.SetReadDeadline(end), control.SetWriteDeadline(end))
		}
		next.ServeHTTP(w, r)
		// It fails where the connection is gone or was taken over, which needs no deadline.
		_ = control.SetReadDeadline(time.Now().Add(drainTimeout))
	})
}

// told logs what makes a handler panic, which ends its request only. The server itself tells it like a failed
// handshake.
func told(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if err, ok := reason.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				log.Error("a request handler panicked", "method", r.Method, "path", r.URL.Path, "error", reason,
					"stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}

// site is where a handler is served; bound is called once it is, and may be nil like tls. If it is open, no request is
// ever allowed or not: the bounds are others.
type site struct {
	address string
	tls     *tls.Config
	bound   func()
	open    bool
}

// listen serves until ctx ends; any other end is an error. The handler is made around what only allowed requests reach.
func (s *Service) listen(ctx context.Context, at site, handler func(inside middleware) http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at.address, err)
	}
	limits, header := crowdLimits, maxHeader
	if at.open {
		limits, header = openLimits, openHeader
	}
	clients := crowd.New(limits, s.env.Log)
	listener = clients.Listener(listener)
	if at.tls != nil {
		listener = tls.NewListener(listener, at.tls)
	}
	s.env.Log.Info("listening", "address", at.address, "tls", at.tls != nil)
	if at.bound != nil {
		at.bound()
	}
	server := &http.Server{
		Handler:     told(s.env.Log, bounded(clients.Outside(handler(clients.Inside)))),
		IdleTimeout: idleTimeout, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: header,
		ErrorLog:    slog.NewLogLogger(s.env.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: clients.Context, ConnState: clients.State,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsPerConnection, SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
	}
	server.SetKeepAlivesEnabled(!at.open)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			// What doesn't end in time loses its connection.
			_ = server.Close()
		}
	})
	err = server.Serve(listener)
	if stop() {
		return fmt.Errorf("serve on %s: %w", at.address, err)
	}
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
