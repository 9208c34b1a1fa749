package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kubelot.dev/daemon"
	"kubelot.dev/services/api/internal/cert"
)

const (
	// crowdChild is the address on which this process is the server of TestACrowdKeepsNobodyOut, or after openChild that
	// of TestACrowdThatIsAnsweredKeepsNobodyOut.
	crowdChild = "KUBELOT_TEST_CROWD"
	openChild  = "open"
	// memoryHigh is that of kubelot-api.service, in KiB.
	memoryHigh = 192 << 10
)

// serveCrowd serves as the daemon does, with certificates of its own. Who has the password is allowed.
func serveCrowd(address string) error {
	dir, err := os.MkdirTemp("", "crowd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.DiscardHandler)
	files, err := cert.SelfSigned(dir, "n1", log)
	if err != nil {
		return err
	}
	s := &Service{env: daemon.Env{Log: log}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the test
		cancel()
	}()
	bound := func() { fmt.Fprintln(os.Stdout, "bound") }
	if port, ok := strings.CutPrefix(address, openChild); ok {
		at := site{address: port, open: true, bound: bound}
		return s.listen(ctx, at, open(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })))
	}
	at := site{
		address: address, tls: &tls.Config{GetCertificate: files.Get, NextProtos: []string{"h2", "http/1.1"}},
		bound: bound,
	}
	return s.listen(ctx, at, func(inside middleware) http.Handler {
		pods := inside(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "pods") }))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Authorization") {
			case "Bearer right":
			case "Bearer slow":
				<-r.Context().Done() // as if the review took long
				return
			default:
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
			pods.ServeHTTP(w, r)
		})
	})
}

// siege is a crowd of clients without rights.
type siege struct {
	count int
	tls   []string // protocols; nil for none
	says  string
}

// Whatever a crowd of clients without rights does, the daemon's memory stays below its limit, and a client that has the
// right is served, from another address and from that of the crowd.
func TestACrowdKeepsNobodyOut(t *testing.T) {
	address, pid := startCrowdChild(t, "")
	asks(t, address, "127.0.0.1") // once, so that what follows compares with a server that works
	tiny := strings.Builder{}
	for i := range 250_000 {
		tiny.WriteString(strconv.FormatInt(int64(i), 36) + ":\r\n")
	}
	const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	const request = "GET /pods HTTP/1.1\r\nHost: n1\r\n"
	for name, c := range map[string]siege{
		"say nothing":                 {3000, nil, ""},
		"half a handshake":            {3000, nil, "\x16\x03\x01\x02\x00\x01"},
		"a handshake":                 {2000, []string{"http/1.1"}, ""},
		"a handshake for HTTP/2":      {400, []string{"h2"}, http2},
		"a request without the right": {500, []string{"http/1.1"}, request + "\r\n"},
		"half of small headers":       {700, []string{"http/1.1"}, request + tiny.String()[:15<<10]},
		"large headers":               {100, []string{"http/1.1"}, request + tiny.String()[:1<<20]},
		"endless headers":             {100, []string{"http/1.1"}, request + "X: " + strings.Repeat("x", 3<<20)},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c.keepsNobodyOut(t, address, pid, "127.0.0.2", "127.0.0.1")
		})
	}
}

// The same is true of connections that each have as many requests as they may. But while the crowd's requests wait for
// reviews, those of other clients of its address wait too.
func TestACrowdOfRequestsKeepsNobodyOut(t *testing.T) {
	for name, c := range map[string]struct {
		token, settings string
		served          []string
	}{
		"that wait": {"Bearer slow", "\x00\x00\x00\x04\x00\x00\x00\x00\x00", []string{"127.0.0.2"}},
		"whose answers find no room": {
			"Bearer junk", "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00",
			[]string{"127.0.0.2", "127.0.0.1"},
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			address, pid := startCrowdChild(t, "")
			says := bytes.NewBufferString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + c.settings)
			// GET, https, / and the header authorization
			fields := append([]byte("\x82\x87\x84\x0f\x08"), byte(len(c.token)))
			fields = append(fields, c.token...)
			for i := range streamsPerConnection {
				says.Write([]byte{0, 0, byte(len(fields)), 1, 5, 0, 0, 0, byte(2*i + 1)})
				says.Write(fields)
			}
			siege{520, []string{"h2"}, says.String()}.keepsNobodyOut(t, address, pid, c.served...)
		})
	}
}

// keepsNobodyOut wants clients that have the right to be served, and the memory to stay below its limit.
func (s siege) keepsNobodyOut(t *testing.T, address string, pid int, clients ...string) {
	t.Helper()
	began := time.Now()
	crowd := crowded(t, address, s.count, s.tls, s.says)
	for _, from := range clients {
		asks(t, address, from)
	}
	memory := resident(t, pid)
	t.Logf("%d connections in %v, %d KiB", len(crowd), time.Since(began).Round(time.Millisecond), memory)
	if memory > memoryHigh {
		t.Errorf("the daemon has %d KiB, which is more than its MemoryHigh", memory)
	}
	for _, conn := range crowd {
		conn.Close()
	}
}

// Where everybody is answered, a crowd that was answered can't use up the memory either, and is in nobody's way.
func TestACrowdThatIsAnsweredKeepsNobodyOut(t *testing.T) {
	address, pid := startCrowdChild(t, openChild)
	tiny := strings.Builder{}
	for i := range 200_000 {
		tiny.WriteString(strconv.FormatInt(int64(i), 36) + ":\r\n")
	}
	const request = "GET /healthz HTTP/1.1\r\nHost: n1\r\n"
	for name, says := range map[string]string{
		"large headers after an answer":  request + "\r\n" + request + tiny.String(),
		"half a request after an answer": request + "\r\n" + request,
		"large headers":                  request + tiny.String(),
		"no body":                        "POST /healthz HTTP/1.1\r\nHost: n1\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			crowd := crowded(t, address, 64, nil, says)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := (&http.Client{Timeout: time.Minute}).Do(request)
			if err != nil {
				t.Fatalf("who asks once isn't served: %v", err)
			}
			answer.Body.Close()
			memory := resident(t, pid)
			t.Logf("%d connections, %d KiB", len(crowd), memory)
			if answer.StatusCode != http.StatusOK || memory > memoryHigh/4 {
				t.Errorf("who asks once is answered %s, and the daemon has %d KiB", answer.Status, memory)
			}
			for _, conn := range crowd {
				conn.Close()
			}
		})
	}
}

// crowded makes many connections at once, which stay open as far as the server lets them.
func crowded(t *testing.T, address string, count int, protocols []string, says string) []net.Conn {
	t.Helper()
	var (
		mu    sync.Mutex
		crowd []net.Conn
		wg    sync.WaitGroup
	)
	turns := make(chan struct{}, 64)
	for range count {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			conn, err := net.DialTimeout("tcp", address, time.Minute)
			if err != nil {
				return
			}
			mu.Lock()
			crowd = append(crowd, conn)
			mu.Unlock()
			_ = conn.SetDeadline(time.Now().Add(time.Second)) // who is not let go on gives up
			if protocols != nil {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
			}
			_, _ = io.WriteString(conn, says)
			if protocols != nil && says == "" {
				_ = conn.(*tls.Conn).Handshake()
			}
		})
	}
	wg.Wait()
	return crowd
}

// asks is a client that has the right, on a connection of its own.
func asks(t *testing.T, address, from string) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer right")
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		t.Errorf("a client from %s isn't served: %v", from, err)
		return
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "pods" {
		t.Errorf("a client from %s is answered %s %q, %v", from, answer.Status, body, err)
	}
}

func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	size, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// startCrowdChild runs serveCrowd as a process of its own. Another process may take the port that was free, so it tries
// several.
func startCrowdChild(t *testing.T, kind string) (address string, pid int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for tries := 1; ; tries++ {
		port := freePort(t)
		child := exec.CommandContext(context.WithoutCancel(t.Context()), self)
		child.Env = append(os.Environ(), crowdChild+"="+kind+":"+port, "GOGC=50")
		child.Stderr = os.Stderr
		stdin, err := child.StdinPipe()
		stdout, err2 := child.StdoutPipe()
		if err := errors.Join(err, err2, child.Start()); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if line == "bound\n" {
			t.Cleanup(func() {
				stdin.Close()
				if err := child.Wait(); err != nil {
					t.Errorf("the server ended with %v", err)
				}
			})
			return "127.0.0.1:" + port, child.Process.Pid
		}
		stdin.Close()
		if ended := child.Wait(); tries == 5 {
			t.Fatalf("the server says %q, %v, and ended with %v", line, err, ended)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
}
