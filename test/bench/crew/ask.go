package crew

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// askTimeout is for a busy machine.
const askTimeout = 30 * time.Second

// ask reads the daemon's metrics socket. The supervisor has none, and a daemon may run without pprof.
func (p *Process) ask(ctx context.Context, runDir string) error {
	socket := filepath.Join(runDir, "metrics", p.Name+".sock")
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A collection first: the metrics then count its work, and not what the last samples left.
	heap, found, err := page(ctx, socket, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return err
	}
	if found {
		if n, ok := number(heap, "# HeapAlloc = "); ok {
			bytes := int64(n)
			p.Heap = &bytes
		}
	}
	metrics, _, err := page(ctx, socket, "/metrics")
	if err != nil {
		return err
	}
	if n, ok := number(metrics, "go_goroutines "); ok {
		count := int(n)
		p.Goroutines = &count
	}
	return nil
}

// page gets a page from a metrics socket; found is false if the daemon doesn't have it, or has just gone.
func page(ctx context.Context, socket, path string) (text string, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string,
	) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://metrics"+path, nil)
	if err != nil {
		return "", false, err
	}
	answer, err := transport.RoundTrip(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return "", false, nil
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", false, fmt.Errorf("get %s: %w", path, err)
	}
	return string(body), true, nil
}

// number is the one that follows the prefix at the beginning of a line.
func number(text, prefix string) (float64, bool) {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, prefix); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return n, err == nil
		}
	}
	return 0, false
}

// Profile gets a profile of a daemon that runs with --profiling, such as "profile?seconds=10" or "heap".
func (c Crew) Profile(ctx context.Context, daemon, what string) ([]byte, error) {
	text, found, err := page(ctx, filepath.Join(c.RunDir, "metrics", daemon+".sock"), "/debug/pprof/"+what)
	if err == nil && !found {
		err = errors.New("it serves none; does it run with --profiling?")
	}
	if err != nil {
		return nil, fmt.Errorf("profile of kubelot-%s: %w", daemon, err)
	}
	return []byte(text), nil
}
