package crowd

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a connection in memory that has an address.
type pipe struct {
	net.Conn
	from string
}

func (p pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.from)} }

// hall is a crowd in memory. Its requests are refused, but for those of whom is allowed.
type hall struct {
	*Crowd
	t       *testing.T
	handler http.Handler
	// release ends requests that are held, one each.
	release chan struct{}
}

func newHall(t *testing.T, limits Limits) *hall {
	t.Helper()
	h := &hall{Crowd: New(limits, slog.New(slog.DiscardHandler)), t: t, release: make(chan struct{})}
	hold := func(code int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-h.release
			w.WriteHeader(code)
		})
	}
	out, in := hold(http.StatusUnauthorized), h.Inside(hold(http.StatusOK))
	h.handler = h.Outside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/out" {
			out.ServeHTTP(w, r)
			return
		}
		in.ServeHTTP(w, r)
	}))
	return h
}

// connect is a new connection from an address, and the client's end of it.
func (h *hall) connect(from string) (conn *Conn, client net.Conn) {
	client, server := net.Pipe()
	conn = h.enter(pipe{server, from})
	h.t.Cleanup(func() { conn.Close() })
	return conn, client
}

// ask makes a request. The code comes once it is answered.
func (h *hall) ask(conn *Conn, path string) <-chan int {
	answered := make(chan int, 1)
	ctx := context.WithValue(h.t.Context(), connKey{}, conn)
	go func() {
		answer := httptest.NewRecorder()
		h.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx))
		answered <- answer.Code
	}()
	synctest.Wait()
	return answered
}

// answers lets one request end that is held, and reports what the answer is, 0 for none.
func (h *hall) answers(answered <-chan int) int {
	synctest.Wait()
	select {
	case h.release <- struct{}{}:
	default:
	}
	synctest.Wait()
	select {
	case code := <-answered:
		return code
	default:
		return 0
	}
}

// Requests that wait wait longer if others come from their own address only.
func TestNoAddressTakesAllTurns(t *testing.T) {
	const noisy, quiet = "192.0.2.1", "192.0.2.2"
	limits := few
	limits.Strangers, limits.Guests, limits.Pending, limits.Requests, limits.Pages = 8, 8, 32, 2, 2
	for name, path := range map[string]string{"requests of strangers": "/out", "pages": "/page"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHall(t, limits)
				var crowd []<-chan int
				for range 4 {
					conn, _ := h.connect(noisy)
					crowd = append(crowd, h.ask(conn, path))
				}
				conn, _ := h.connect(quiet)
				alone := h.ask(conn, path)
				// One of each address is held, and which of the two is let go on is nobody's choice.
				h.release <- struct{}{}
				if code := h.answers(alone); code == 0 {
					t.Error("who comes alone waits for the crowd")
				}
				for range 3 {
					h.release <- struct{}{}
				}
				for _, answered := range crowd {
					<-answered
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		limits.Senders = 2
		h := newHall(t, limits)
		var more chan bool // of the last one: what it sends after Small bytes is read
		for _, from := range []string{noisy, noisy, noisy, quiet} {
			conn, client := h.connect(from)
			sent := make(chan bool, 1)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			go func() {
				_, first := client.Write(make([]byte, limits.Small))
				_, second := client.Write([]byte("more"))
				sent <- first == nil && second == nil
			}()
			synctest.Wait()
			more = sent
		}
		if len(more) == 0 || !<-more {
			t.Error("who comes alone sends no more while a crowd does")
		}
		for conn := range h.present {
			conn.Close()
		}
		synctest.Wait()
		left(t, h.Crowd)
	})
}

// The address with the most pending requests loses the connection that has the most of them, be it a guest.
func TestPendingRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := few
		limits.Strangers, limits.Requests, limits.Pending = 8, 64, 4
		h := newHall(t, limits)
		quiet, _ := h.connect("192.0.2.2")
		alone := h.ask(quiet, "/out")
		conns := map[string]*Conn{}
		for _, name := range []string{"few", "many", "guest"} {
			conns[name], _ = h.connect("192.0.2.1")
		}
		guest := h.ask(conns["guest"], "/in")
		leaves := func(want string) {
			t.Helper()
			for name, conn := range conns {
				if !h.present[conn] != (name == want) {
					t.Errorf("of %q and others the one that leaves should be %q", name, want)
				}
			}
			delete(conns, want)
		}
		asked := []<-chan int{h.ask(conns["few"], "/out"), h.ask(conns["many"], "/out"), h.ask(conns["many"], "/out")}
		leaves("")
		asked = append(asked, h.ask(conns["many"], "/out"))
		leaves("many")
		for range 3 {
			asked = append(asked, h.ask(conns["guest"], "/out"))
		}
		leaves("guest")
		if !h.present[quiet] {
			t.Error("the connection of another address is closed")
		}
		close(h.release)
		for _, answered := range append(asked, alone, guest) {
			<-answered
		}
		want(t, "pending requests that are left", h.pending+quiet.pending, 0)
	})
}

// What doesn't last takes no place of what does.
func TestPagesHaveTheirOwnPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := few
		limits.Allowed, limits.Pages = 1, 1
		h := newHall(t, limits)
		conn, _ := h.connect("192.0.2.1")
		first := h.ask(conn, "/page")
		second := h.ask(conn, "/page")
		stream := h.ask(conn, "/stream")
		want(t, "a stream that is too many", <-h.ask(conn, "/stream"), http.StatusServiceUnavailable)
		if len(second) > 0 {
			t.Error("a page that is too many doesn't wait")
		}
		close(h.release)
		for what, answered := range map[string]<-chan int{"a page": first, "one that waited": second, "a stream": stream} {
			want(t, what, <-answered, http.StatusOK)
		}
	})
}

// frame is one of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// An HTTP/2 client that takes no answers loses its connection, whether they are refusals or pages.
func TestAnswersThatAreNotTakenCount(t *testing.T) {
	limits := few
	limits.Strangers, limits.Requests, limits.Pending = 8, 64, 4
	address, _ := serve(t, limits)
	for name, path := range map[string]string{"refusals": "/out", "pages": "/page"} {
		t.Run(name, func(t *testing.T) {
			alone, greedy := dial(t, address, "127.0.0.2"), dial(t, address, "127.0.0.1")
			says := bytes.NewBufferString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
			says.Write(frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00")) // the window for answers is 0
			for i := range uint32(limits.Pending + 4) {
				// GET, http, and the path
				says.Write(frame(1, 5, 2*i+1, "\x82\x86\x04"+string(rune(len(path)))+path))
			}
			if _, err := greedy.Write(says.Bytes()); err != nil {
				t.Fatal(err)
			}
			if err := greedy.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if !greedy.closed() {
				t.Error("who takes no answers stays")
			}
			want(t, "another client", alone.ask(t, "/in"), http.StatusOK)
		})
	}
}
