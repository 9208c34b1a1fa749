package crowd

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var few = Limits{
	Strangers: 2, Guests: 2, Patience: time.Hour, Small: 1 << 10, Large: 8 << 10, Senders: 1, Requests: 1,
	Pending: 8, Lasts: func(r *http.Request) bool { return r.URL.Path != "/page" }, Pages: 1, Allowed: 8,
}

// reached has a message for each request that is held.
var reached = make(chan struct{}, 8)

// serve runs a server in which the path /in is allowed, /out is not, and /hold and /held wait for released.
func serve(t *testing.T, limits Limits) (address string, released chan struct{}) {
	t.Helper()
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	released = make(chan struct{})
	c := New(limits, slog.New(slog.DiscardHandler))
	inside := c.Inside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			reached <- struct{}{}
			<-released
		}
		fmt.Fprint(w, "welcome")
	}))
	server := &http.Server{
		Handler: c.Outside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/held" {
				reached <- struct{}{}
				<-released
			}
			if r.URL.Path == "/out" {
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			inside.ServeHTTP(w, r)
		})),
		ConnContext: c.Context, ConnState: c.State, ReadHeaderTimeout: time.Minute, Protocols: &http.Protocols{},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(c.Listener(plain))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
		left(t, c)
	})
	return plain.Addr().String(), released
}

// left fails if something of a crowd without connections is counted for long.
func left(t *testing.T, c *Crowd) {
	t.Helper()
	var counts []int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		counts = []int{
			len(c.present), len(c.homes), c.pending, len(c.senders), len(c.requests), len(c.pages), len(c.allowed),
		}
		c.mu.Unlock()
		if slices.Max(counts) == 0 {
			return
		}
	}
	t.Errorf("connections, addresses, pending requests, senders, requests of strangers, pages and lasting requests that "+
		"are left: %v", counts)
}

// client is one connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, address, from string) *client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{conn, bufio.NewReader(conn)}
}

// ask is the code of an answer, 0 if the connection is closed.
func (c *client) ask(t *testing.T, path string) int {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: n\r\n\r\n"); err != nil {
		return 0
	}
	return c.answer(t)
}

// enter is a new connection whose first request was allowed. On a busy machine that may take several tries.
func enter(t *testing.T, address string) *client {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		c := dial(t, address, "127.0.0.1")
		code := c.ask(t, "/in")
		if code == http.StatusOK {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("one that may enter: %d, want %d", code, http.StatusOK)
		}
	}
}

func (c *client) answer(t *testing.T) int {
	t.Helper()
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	return response.StatusCode
}

// closed reports whether the server closes the connection; it may say why before that.
func (c *client) closed() bool {
	_, err := io.Copy(io.Discard, c.in)
	return err == nil || !strings.Contains(err.Error(), "timeout")
}

func want(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestTheOldestStrangerOfTheLargestCrowdLeaves(t *testing.T) {
	address, _ := serve(t, few)
	alone := dial(t, address, "127.0.0.2")
	first := dial(t, address, "127.0.0.1")
	second := dial(t, address, "127.0.0.1")
	if !first.closed() {
		t.Error("the oldest of the address that has two isn't closed")
	}
	want(t, "the one of another address", alone.ask(t, "/in"), 200)
	want(t, "the younger one", second.ask(t, "/out"), 401)
	// The first is a guest by now and doesn't count.
	third := dial(t, address, "127.0.0.1")
	want(t, "one more", third.ask(t, "/out"), 401)
	fourth := dial(t, address, "127.0.0.1")
	if !second.closed() {
		t.Error("who was refused is a stranger, but stays")
	}
	want(t, "who comes last", fourth.ask(t, "/in"), 200)
}

func TestGuestsThatAreIdleMakeRoom(t *testing.T) {
	address, release := serve(t, few)
	busy, idle := dial(t, address, "127.0.0.1"), dial(t, address, "127.0.0.1")
	want(t, "the first", idle.ask(t, "/in"), 200)
	const two = "GET /in HTTP/1.1\r\nHost: n\r\n\r\nGET /hold HTTP/1.1\r\nHost: n\r\n\r\n"
	if _, err := io.WriteString(busy, two); err != nil {
		t.Fatal(err)
	}
	want(t, "the second", busy.answer(t), 200)
	<-reached
	// The server may have answered the idle one without noting yet that it is idle.
	next := enter(t, address)
	if !idle.closed() {
		t.Error("the idle one isn't closed")
	}
	if _, err := io.WriteString(next, "GET /hold HTTP/1.1\r\nHost: n\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-reached
	want(t, "one that is too many", dial(t, address, "127.0.0.1").ask(t, "/in"), 503)
	close(release)
	want(t, "the busy one", busy.answer(t), 200)
}

func TestAStrangerLeavesInTime(t *testing.T) {
	limits := few
	limits.Patience = 200 * time.Millisecond
	address, release := serve(t, limits)
	close(release)
	guest := enter(t, address)
	silent := dial(t, address, "127.0.0.1")
	if !silent.closed() {
		t.Error("who says nothing stays")
	}
	want(t, "the guest, later", guest.ask(t, "/in"), 200)
}

func TestStrangersSendLittle(t *testing.T) {
	address, _ := serve(t, few)
	long := "GET /in HTTP/1.1\r\nHost: n\r\nX: " + strings.Repeat("x", 4<<10)
	first, second := dial(t, address, "127.0.0.1"), dial(t, address, "127.0.0.1")
	for _, c := range []*client{first, second} {
		if _, err := io.WriteString(c, long); err != nil {
			t.Fatal(err)
		}
	}
	// One of the two may send more, whichever it is; the other waits until that one is a guest.
	for _, c := range []*client{first, second} {
		go func() { _, _ = io.WriteString(c, "\r\n\r\n") }()
	}
	want(t, "the first", first.answer(t), 200)
	want(t, "the second", second.answer(t), 200)
	endless := dial(t, address, "127.0.0.1")
	go func() { _, _ = io.WriteString(endless, long+strings.Repeat("y", 64<<10)) }()
	if !endless.closed() {
		t.Error("a stranger may send without end")
	}
}

func TestRequestsOfStrangersTakeTurns(t *testing.T) {
	address, release := serve(t, few)
	held, waits := dial(t, address, "127.0.0.1"), dial(t, address, "127.0.0.1")
	if _, err := io.WriteString(held, "GET /held HTTP/1.1\r\nHost: n\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-reached
	answered := make(chan int, 1)
	go func() { answered <- waits.ask(t, "/out") }()
	close(release)
	want(t, "the one that was held", held.answer(t), 200)
	want(t, "the one that waited", <-answered, 401)
}

func TestAllowedRequestsAreBounded(t *testing.T) {
	limits := few
	limits.Guests, limits.Allowed = 8, 2
	address, release := serve(t, limits)
	var held []*client
	for range limits.Allowed {
		c := dial(t, address, "127.0.0.1")
		if _, err := io.WriteString(c, "GET /hold HTTP/1.1\r\nHost: n\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-reached
		held = append(held, c)
	}
	more := dial(t, address, "127.0.0.1")
	want(t, "one that is too many", more.ask(t, "/in"), 503)
	close(release)
	for _, c := range held {
		want(t, "one that was held", c.answer(t), 200)
	}
	// The server may have answered without having left the handler yet.
	code := 0
	for end := time.Now().Add(time.Minute); code != 200 && time.Now().Before(end); {
		code = more.ask(t, "/in")
	}
	want(t, "the refused one on its connection, later", code, 200)
}
