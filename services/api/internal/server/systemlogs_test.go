package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// logged gives the daemon logs of its own, and a journal that knows kubelet.service.
func logged(t *testing.T, lines string) *bed {
	t.Helper()
	b := newBed(t, lines)
	dir := t.TempDir()
	b.service.systemLogs, b.service.journalctl = dir, filepath.Join(t.TempDir(), "journalctl")
	for path, content := range map[string]string{
		b.service.journalctl: "#!/bin/sh\nif [ \"$1\" = --field ]; then echo kubelet.service; exit; fi\necho " +
			"\"journal $*\"\n",
		filepath.Join(dir, "syslog"):    "from syslog\n",
		filepath.Join(dir, "other.log"): "from other\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestLogQuery(t *testing.T) {
	b := logged(t, "enableSystemLogQuery: true\n")
	b.wants("GET", "/logs/?query=kubelet&tailLines=1", http.StatusOK,
		"journal --utc --no-pager --output=short-precise --pager-end --lines=1 --unit=kubelet\n")
	b.wants("GET", "/logs?query=kubelet", http.StatusOK, "--unit=kubelet\n")
	b.wants("GET", "/logs?query=other", http.StatusOK, "from other\n")
	b.wants("GET", "/logs/?query=/syslog", http.StatusOK, "from syslog\n")
	b.wants("GET", "/logs/syslog", http.StatusOK, "from syslog\n")
	b.wants("GET", "/logs/", http.StatusOK, "other.log")
	b.wants("GET", "/logs", http.StatusTemporaryRedirect, "")
	b.wants("GET", "/logs/?query=", http.StatusBadRequest, "may not be empty")
	b.wants("GET", "/logs/?query=a&boot=x", http.StatusBadRequest, "boot")
	b.wants("GET", "/logs/syslog?query=kubelet", http.StatusNotAcceptable, "path not allowed in query mode")
	b.wants("GET", "/logs/?query=a%3Breboot", http.StatusNotAcceptable, "unsupported characters")
	b.wants("GET", "/logs/?query=/../passwd", http.StatusNotAcceptable, "path escapes")

	request := httptest.NewRequest("GET", "/logs/?query=kubelet", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	answer := httptest.NewRecorder()
	b.service.routes().ServeHTTP(answer, request)
	zip, err := gzip.NewReader(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(zip); err != nil ||
		string(text) != "journal --utc --no-pager --output=short-precise --unit=kubelet\n" {
		t.Errorf("compressed: %q, %v", text, err)
	}
}

// To open a pipe waits for who writes it, and nobody can end that.
func TestLogsThatArePipes(t *testing.T) {
	b := logged(t, "enableSystemLogQuery: true\n")
	if err := syscall.Mkfifo(filepath.Join(b.service.systemLogs, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/logs/pipe", "/logs/?query=/pipe"} {
		answered := make(chan int, 1)
		go func() {
			code, _ := b.call("GET", path)
			answered <- code
		}()
		select {
		case code := <-answered:
			if code != http.StatusForbidden {
				t.Errorf("%s: %d", path, code)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s is never answered", path)
		}
	}
	b.wants("GET", "/logs/?query=pipe", http.StatusOK, "error getting log for pipe")
}

// It has to be asked for.
func TestLogQueryIsOff(t *testing.T) {
	b := logged(t, "")
	b.wants("GET", "/logs/?query=kubelet", http.StatusOK, "syslog") // the list of files
	b.wants("GET", "/logs?query=kubelet", http.StatusTemporaryRedirect, "")
}
