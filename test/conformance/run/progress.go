package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// watcher takes the suite's progress reports: each of ginkgo's processes posts one after each spec.
type watcher struct {
	url    string
	server *http.Server

	mu     sync.Mutex
	out    io.Writer
	agent  string
	begin  time.Time
	total  int
	passed int
	failed int
}

// report is what the suite posts: a spec's verdict and name, and of the first process the number of specs.
type report struct {
	Message string `json:"msg"`
	Total   int    `json:"total"`
}

func watch(out io.Writer, agent string) (*watcher, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("watch the suite's progress: %w", err)
	}
	w := &watcher{url: "http://" + listener.Addr().String(), out: out, agent: agent, begin: time.Now()}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = w.server.Serve(listener) }()
	return w, nil
}

func (w *watcher) close() { _ = w.server.Close() }

// ServeHTTP takes one report. A report that can't be read is left out: this is for people who wait, results come from JUnit.
func (w *watcher) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	var r report
	if json.NewDecoder(req.Body).Decode(&r) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total = max(w.total, r.Total)
	verdict, spec, _ := strings.Cut(r.Message, " ")
	switch verdict {
	case "PASSED":
		w.passed++
	case "FAILED":
		w.failed++
		fmt.Fprintf(w.out, "%s: FAILED %s\n", w.agent, spec)
	default:
		return
	}
	if done := w.passed + w.failed; done%10 == 0 || done == w.total {
		fmt.Fprintf(w.out, "%s: %d of %d specs, %d failed, %s\n", w.agent, done, w.total, w.failed, time.Since(w.begin).Round(time.Second))
	}
}
