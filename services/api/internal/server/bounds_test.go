package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/services/api/internal/auth"
)

// dialed serves a handler on one connection in memory, and returns the client's end.
func dialed(t *testing.T, handler http.Handler) net.Conn {
	t.Helper()
	client, conn := net.Pipe()
	listener := &oneConn{conns: make(chan net.Conn, 1)}
	listener.conns <- conn
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		client.Close()
	})
	return client
}

type oneConn struct{ conns chan net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, errors.New("closed")
}

func (l *oneConn) Close() error {
	close(l.conns)
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// A client that announces a body and never sends it is answered, and loses its connection.
func TestBodyThatNeverComes(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		code string
	}{"refused": {"/pods", "401"}, "refused a stream": {"/exec/ns/web/app", "401"}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "")
			guard, err := auth.New(b.service.env.Config.Kubelet, b.service.rules, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				conn := dialed(t, bounded(guard.Filter(http.NewServeMux())))
				ends(t, conn, "POST "+c.path+" HTTP/1.1\r\nHost: n1\r\nContent-Length: 1\r\n\r\n", c.code, drainTimeout)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		conn := dialed(t, bounded(http.NewServeMux()))
		ends(t, conn, "POST /nonsense HTTP/1.1\r\nHost: n1\r\nContent-Length: 1\r\n\r\n", "404", drainTimeout)
	})
}

// ends sends a request and wants the answer's code, and the end of the connection in time.
func ends(t *testing.T, conn net.Conn, request, code string, within time.Duration) {
	t.Helper()
	began := time.Now()
	if err := conn.SetDeadline(began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	if !strings.HasPrefix(string(answer), "HTTP/1.1 "+code) || time.Since(began) > within+time.Second {
		t.Errorf("after %v: %q, %v", time.Since(began), answer, err)
	}
}

// What doesn't last has to be read and answered in time; what does isn't disturbed.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		conn := dialed(t, bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
			defer cancel()
			<-ctx.Done()
			ended <- time.Since(began)
		})))
		if _, err := io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if took := <-ended; took != requestTimeout {
			t.Errorf("/pods ended after %v", took)
		}
		conn = dialed(t, bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				ended <- 0
			case <-time.After(time.Hour):
				ended <- time.Hour
			}
		})))
		if _, err := io.WriteString(conn, "GET /containerLogs/a/b/c HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if took := <-ended; took != time.Hour {
			t.Error("a log that is followed was ended")
		}
	})
}

// A panic ends only its own request, and is an error in the log. A handler that aborts its request is no error.
func TestPanicsAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		reason any
		logged bool
	}{"defect": {"out of range", true}, "abort": {http.ErrAbortHandler, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(c.reason) })
				conn := dialed(t, told(slog.New(slog.NewTextHandler(&log, nil)), handler))
				if _, err := io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				if answer, err := io.ReadAll(conn); len(answer) > 0 || err != nil {
					t.Errorf("answered %q, %v", answer, err)
				}
				if got := strings.Contains(log.String(), "level=ERROR") && strings.Contains(log.String(),
					"path=/pods"); got != c.logged {
					t.Errorf("log: %q", log.String())
				}
			})
		})
	}
}
