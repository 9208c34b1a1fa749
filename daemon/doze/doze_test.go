package doze

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// listening is a unix socket and its descriptor.
func listening(t *testing.T, path string) int {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = file.Close(), l.Close() })
	return int(file.Fd())
}

// A socket whose file is gone wakes the daemon, however often the metrics are asked for.
func TestAMissingSocketIsNoticedBetweenScrapes(t *testing.T) {
	for _, missing := range []string{"door", "alarm"} {
		t.Run(missing, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			page, err := os.Create(at("page"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = page.Close() }()
			d := dozer{every: 200 * time.Millisecond, Plan: Plan{
				Page: int(page.Fd()), Metrics: listening(t, at("metrics")), Alarm: listening(t, at("alarm")),
				Doors: []Door{{FD: listening(t, at("door")), Name: "door", Path: at("door")}},
			}}
			woken := make(chan struct{})
			go func() {
				defer close(woken)
				d.wait()
			}()
			if err := os.Remove(at(missing)); err != nil {
				t.Fatal(err)
			}
			end := time.After(20 * time.Second)
			for {
				scrape(t, at("metrics"))
				select {
				case <-woken:
					return
				case <-end:
					t.Fatal("the daemon sleeps on")
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
}

// scrape asks for the metrics, and doesn't wait for them.
func scrape(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("GET /metrics HTTP/1.1\r\n\r\n")) // fails where the answer took too long to be asked for
}
