package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// streams are what a client of exec or attach wants connected.
type streams struct{ stdin, stdout, stderr, tty bool }

// parseStreams reads them from the query. A terminal has no standard error of its own.
func parseStreams(q url.Values) (streams, error) {
	on := func(name string) bool { return q.Get(name) == "1" }
	s := streams{stdin: on("input"), stdout: on("output"), stderr: on("error"), tty: on("tty")}
	s.stderr = s.stderr && !s.tty
	if !s.stdin && !s.stdout && !s.stderr {
		return s, errStreams
	}
	return s, nil
}

// parsePorts reads the ports of a port forwarding over a plain WebSocket; others name them stream by stream.
func parsePorts(q url.Values) ([]int32, error) {
	texts := q["port"]
	if len(texts) == 0 {
		return nil, fmt.Errorf("query parameter %q is required", "port")
	}
	var ports []int32
	for _, text := range texts {
		if text == "" {
			return nil, fmt.Errorf("query parameter %q cannot be empty", "port")
		}
		for item := range strings.SplitSeq(text, ",") {
			port, err := strconv.ParseUint(item, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("unable to parse %q as a port: %w", text, err)
			}
			if port < 1 {
				return nil, fmt.Errorf("port %q must be > 0", text)
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}

func (s *Service) getExec(w http.ResponseWriter, r *http.Request) {
	want, err := parseStreams(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	_, id, ok := s.findRunning(w, r)
	if !ok {
		return
	}
	target, err := s.runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: r.URL.Query()["command"], Tty: want.tty, Stdin: want.stdin, Stdout: want.stdout,
		Stderr: want.stderr,
	})
	s.remoteCommand(w, r, remote{"exec", target, err, want})
}

func (s *Service) getAttach(w http.ResponseWriter, r *http.Request) {
	want, err := parseStreams(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	pod, id, ok := s.findRunning(w, r)
	if !ok {
		return
	}
	request := &runtimeapi.AttachRequest{ContainerId: id, Stdin: want.stdin, Stdout: want.stdout, Stderr: want.stderr}
	if spec := pod.SpecOf(r.PathValue("container")); spec != nil {
		// Whether there is a terminal was decided when the container was made.
		request.Tty = spec.TTY
		request.Stderr = request.Stderr && !spec.TTY
	}
	target, err := s.runtime.Attach(r.Context(), request)
	s.remoteCommand(w, r, remote{"attach", target, err, want})
}

// remote is a stream that the runtime has prepared, or its refusal.
type remote struct {
	kind, target string
	err          error
	want         streams
}

// remoteCommand connects the client to the runtime. The newest WebSocket protocol, which can close a single stream, is
// translated into the SPDY that runtimes speak (KEP-4006).
func (s *Service) remoteCommand(w http.ResponseWriter, r *http.Request, to remote) {
	location, ok := s.findStream(w, to.target, to.err)
	if !ok {
		return
	}
	w = &idleWriter{w, s.env.Config.Kubelet.StreamingConnectionIdleTimeout.Duration}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.metrics.webSockets.WithLabelValues(to.kind).Inc()
		options := translator.Options{Stdin: to.want.stdin, Stdout: to.want.stdout, Stderr: to.want.stderr, Tty: to.want.tty}
		translator.NewStreamTranslatorHandler(location, nil, 0, options).ServeHTTP(w, r)
		return
	}
	s.upgrade(location).ServeHTTP(w, r)
}

func (s *Service) getPortForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	var ports []int32
	if !tunnel && wsstream.IsWebSocketRequest(r) {
		var err error
		if ports, err = parsePorts(r.URL.Query()); err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
	}
	pod, ok := s.findPod(w, r)
	if !ok {
		return
	}
	sandbox, ok := pod.Sandbox()
	if !ok {
		fail(w, http.StatusInternalServerError, fmt.Errorf("pod not found (%q)", pod.Name+"_"+pod.Namespace))
		return
	}
	target, err := s.runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	location, ok := s.findStream(w, target, err)
	if !ok {
		return
	}
	w = &idleWriter{w, s.env.Config.Kubelet.StreamingConnectionIdleTimeout.Duration}
	handler := s.upgrade(location)
	if tunnel {
		s.metrics.webSockets.WithLabelValues("portforward").Inc()
		handler = translator.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(w, r)
}

// findStream finds where the runtime serves the stream, and answers the request where it doesn't.
func (s *Service) findStream(w http.ResponseWriter, target string, err error) (*url.URL, bool) {
	if err == nil {
		location, parseErr := url.Parse(target)
		if parseErr == nil && location.Host != "" {
			return location, true
		}
		// The address holds the token of the stream.
		err = errors.New("can't use the runtime's streaming address: check the settings of its streaming server")
	}
	switch status.Code(err) {
	case codes.NotFound:
		fail(w, http.StatusNotFound, err)
	case codes.ResourceExhausted:
		w.Header().Set("Retry-After", "60")
		fail(w, http.StatusTooManyRequests, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
	return nil, false
}

// upgrade passes the connection on as it is. A request that isn't an upgrade is refused.
func (s *Service) upgrade(location *url.URL) http.Handler {
	return proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{s.env.Log})
}

type responder struct{ log *slog.Logger }

// Error implements proxy.ErrorResponder.
func (r responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	r.log.Warn("can't connect a stream to the runtime", "path", req.URL.Path, "error", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// idleWriter gives the connection that a stream takes over an end after the idle time.
type idleWriter struct {
	http.ResponseWriter
	idle time.Duration
}

// Unwrap is for http.ResponseController.
func (w *idleWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush passes on what http.Flusher does.
func (w *idleWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (w *idleWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil || w.idle <= 0 {
		return conn, buffer, err
	}
	c := &idleConn{conn, w.idle}
	// A WebSocket reads and writes through the buffer: after what it has already, that is to be c, too.
	read, _ := buffer.Peek(buffer.Reader.Buffered())
	buffer.Reader.Reset(io.MultiReader(bytes.NewReader(bytes.Clone(read)), c))
	_, _ = buffer.Peek(len(read)) // it still says how much it has
	buffer.Writer.Reset(c)
	return c, buffer, nil
}

// idleConn ends when nothing passes either way for the idle time.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c *idleConn) Read(p []byte) (int, error) {
	c.extend()
	return c.Conn.Read(p)
}

func (c *idleConn) Write(p []byte) (int, error) {
	c.extend()
	return c.Conn.Write(p)
}

// extend fails only on a connection that is closed, and any use of it fails then.
func (c *idleConn) extend() { _ = c.SetDeadline(time.Time{}) }

// SetDeadline ends it sooner at most, since a WebSocket sets its own idle time of four hours.
func (c *idleConn) SetDeadline(t time.Time) error {
	if end := time.Now().Add(c.idle); t.IsZero() || t.After(end) {
		t = end
	}
	return c.Conn.SetDeadline(t)
}
