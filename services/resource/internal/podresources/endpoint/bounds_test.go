package endpoint

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// want compares the code of a call's error, and that its text has a part.
func want(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), part) {
		t.Errorf("the call ends with %v, want %v: %q", err, code, part)
	}
}

// TestRate holds the kubelet's numbers: bursts of 10, and 100 requests per second after that.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := (&Endpoint{}).limiter()
		unary, stream := limitUnary(limiter), limitStream(limiter)
		handled := 0
		// refused makes requests and streams by turns, and counts those that are refused.
		refused := func(n int) (refused int) {
			for i := range n {
				var err error
				if i%2 == 0 {
					_, err = unary(t.Context(), nil, nil, func(context.Context, any) (any, error) { handled++; return nil, nil })
				} else {
					err = stream(nil, nil, nil, func(any, grpc.ServerStream) error { handled++; return nil })
				}
				if err != nil {
					want(t, err, codes.ResourceExhausted, "rejected by rate limit")
					refused++
				}
			}
			return refused
		}
		if n := refused(25); n != 15 {
			t.Errorf("%d of 25 requests at once are refused, want 15", n)
		}
		time.Sleep(55 * time.Millisecond)
		if n := refused(25); n != 20 {
			t.Errorf("%d of 25 requests after 55 ms are refused, want 20", n)
		}
		time.Sleep(time.Hour)
		if n := refused(25); n != 15 {
			t.Errorf("%d of 25 requests after an hour are refused, want 15", n)
		}
		if handled != 25 {
			t.Errorf("%d requests were handled, want those 25 that were not refused", handled)
		}
	})
}

func TestRequestsAboveTheRateFail(t *testing.T) {
	// Two, and never one again.
	r := run(t, socketPath(t), func(e *Endpoint) { e.Limiter = rate.NewLimiter(0, 2) })
	c := r.client()
	want(t, get(t, c, "a"), codes.OK, "")
	want(t, get(t, r.client(), "b"), codes.OK, "")
	want(t, get(t, c, "c"), codes.ResourceExhausted, "rejected by rate limit")
	stream, err := c.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	want(t, err, codes.ResourceExhausted, "rejected by rate limit")
}

func TestLargeRequestsFail(t *testing.T) {
	r := run(t, socketPath(t))
	c := r.client()
	want(t, get(t, c, strings.Repeat("a", maxRequest-100)), codes.OK, "")
	want(t, get(t, c, strings.Repeat("a", maxRequest)), codes.ResourceExhausted, "larger than max")
	want(t, get(t, c, "after"), codes.OK, "")
}

// TestConnectionsAboveTheLimitAreClosed also holds that a connection which goes makes room for one.
func TestConnectionsAboveTheLimitAreClosed(t *testing.T) {
	path := socketPath(t)
	s, _, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	b := &bounded{Listener: s, limit: 2, log: slog.New(slog.NewTextHandler(&log, nil))}
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := b.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	dial()
	first := <-accepted
	dial()
	second := <-accepted
	for range 3 {
		if n, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection too many reads %d bytes, error %v; want that it is closed", n, err)
		}
	}
	first.Close()
	first.Close() // counts once
	dial()
	third := <-accepted
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection after one that was closed twice: %v, want that it is closed", err)
	}
	s.Close()
	for conn := range accepted {
		t.Errorf("%v was accepted too", conn)
	}
	second.Close()
	third.Close()
	if b.open != 0 {
		t.Errorf("%d connections are counted at the end", b.open)
	}
	if n := strings.Count(log.String(), "refused"); n != 1 {
		t.Errorf("that connections are refused is logged %d times, want once:\n%s", n, &log)
	}
}
