package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"kubelot.dev/bus/topic"
)

// A port that another agent holds is taken over once it is free, and the daemon is healthy again.
func TestHealthzPortIsTakenOver(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b := newBed(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.service.serveHealthz(ctx, other.Addr().String())
	}()
	b.until(func() bool { return b.reported.is(topic.Degraded) })
	other.Close()
	b.until(func() bool { return b.reported.is(topic.Healthy) })
	cancel()
	<-done
}

// The read-only port is there also where the server isn't.
func TestReadOnlyPortAlone(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	b := newBed(t, fmt.Sprintf("readOnlyPort: %d\naddress: 127.0.0.1\n", address.Port))
	b.until(func() bool {
		answer, err := http.Get("http://" + address.String() + "/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return true
	})
}
