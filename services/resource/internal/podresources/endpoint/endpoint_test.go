package endpoint

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

func TestTheEndWaitsForRequests(t *testing.T) {
	r := run(t, socketPath(t), func(e *Endpoint) { e.farewell = limit })
	c := r.client()
	asked := make(chan error, 1)
	go func() { asked <- get(t, c, "hang") }()
	<-r.api.begun
	r.stop()
	waitForNone(t, r.path) // the end has begun
	close(r.api.hang)
	r.down()
	want(t, <-asked, codes.OK, "")
}

func TestTheEndCutsRequestsThatTakeLong(t *testing.T) {
	r := run(t, socketPath(t), func(e *Endpoint) { e.farewell = time.Millisecond })
	c := r.client()
	asked := make(chan error, 1)
	go func() { asked <- get(t, c, "wait") }()
	<-r.api.begun
	r.down()
	if n := r.api.running.Load(); n != 0 {
		t.Errorf("%d requests are still being handled after the end", n)
	}
	if err := <-asked; err == nil {
		t.Error("the request was answered, want that it was cut")
	}
}

func waitForNone(t *testing.T, path string) {
	t.Helper()
	until := time.Now().Add(limit)
	for {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the socket is still there")
		}
		time.Sleep(time.Millisecond)
	}
}
