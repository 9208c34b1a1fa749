package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/sleep"
)

// A resource daemon that sleeps is woken by the question, and answers it. Of one that isn't there that is said at once.
func TestClaimsOfADaemonThatSleeps(t *testing.T) {
	shared := bustest.New()
	conn, resource := shared.Conn("cli"), shared.Conn("resource")
	defer conn.Close()
	defer resource.Close()
	runDir := t.TempDir()
	ask := func() (topic.ClaimsReply, error) {
		return askAwake(t.Context(), conn, runDir, topic.ResourceClaims, topic.ClaimsRequest{})
	}
	if _, err := ask(); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("of a daemon that isn't there: %v", err)
	}
	alarm := sleep.Alarm(runDir, "resource")
	if err := os.Mkdir(filepath.Dir(alarm), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", alarm)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var waking sync.WaitGroup
	defer waking.Wait()
	defer stop()
	waking.Go(func() {
		c, err := listener.Accept()
		if err := errors.Join(err, c.Close(), listener.Close()); err != nil {
			t.Error(err)
		}
		answer := func(context.Context, topic.ClaimsRequest) (topic.ClaimsReply, error) {
			return topic.ClaimsReply{Claims: []topic.HeldClaim{{Namespace: "ns", Name: "toy"}}}, nil
		}
		if err := topic.ResourceClaims.Serve(ctx, resource, answer); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	if reply, err := ask(); err != nil || len(reply.Claims) != 1 {
		t.Errorf("it answers %+v, %v", reply, err)
	}
}
