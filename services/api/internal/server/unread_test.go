package server

import (
	"net/http"
	"testing"
	"time"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
)

// Before the daemon has read the bus it doesn't say that there are no pods.
func TestPodsThatAreNotReadYet(t *testing.T) {
	before := readPatience
	t.Cleanup(func() { readPatience = before })
	readPatience = time.Millisecond
	away := bustest.New()
	away.Disconnect()
	b := newBedOn(t, away, "")
	for _, path := range []string{
		"/pods", "/runningpods/", "/containerLogs/ns/web/app", "/exec/ns/web/app?output=1", "/attach/ns/web/app?output=1",
		"/portForward/ns/web",
	} {
		b.wants("GET", path, http.StatusServiceUnavailable, "kubelot-bus")
	}
	b.wants("GET", "/healthz/syncloop", http.StatusInternalServerError, "has not reported yet")

	readPatience = time.Hour
	answered := make(chan int, 1)
	go func() {
		code, _ := b.call("GET", "/pods")
		answered <- code
	}()
	away.Reconnect()
	if code := <-answered; code != http.StatusOK {
		t.Errorf("once the bus is there: %d", code)
	}
	b.pod("", topic.ContainerRunning)
	b.wants("GET", "/pods", http.StatusOK, `"name":"web"`)
}
