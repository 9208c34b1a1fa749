package check

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
)

// fakeExec answers as told, or hangs until its context ends.
type fakeExec struct {
	answer *runtimeapi.ExecSyncResponse
	err    error
	after  *time.Duration // when it answers; nil for at once
	hang   bool
	away   bool          // the whole runtime hangs
	end    chan struct{} // ends what hangs; may be nil
	calls  atomic.Int64
	alive  func() // what happens when the runtime is asked whether it is there

	mu      sync.Mutex
	command []string
	timeout time.Duration
}

func (f *fakeExec) ExecSync(ctx context.Context, _ string, command []string,
	timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	f.calls.Add(1)
	f.mu.Lock()
	f.command, f.timeout = command, timeout
	f.mu.Unlock()
	if f.after != nil {
		time.Sleep(*f.after)
	}
	if f.hang {
		select {
		case <-f.end:
			return f.answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return f.answer, f.err
}

func (f *fakeExec) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	if f.away {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.alive != nil {
		f.alive()
	}
	return &runtimeapi.VersionResponse{}, nil
}

func TestExec(t *testing.T) {
	exec := &fakeExec{answer: &runtimeapi.ExecSyncResponse{Stdout: []byte("out "), Stderr: []byte("err")}}
	r, err := New(exec).Run(t.Context(), here(), command("a", "$(A)$(B)$$(A)"))
	want(t, r, err, Result{Success: true, Output: "out err"})
	if got := strings.Join(exec.command, " "); got != "a x$(A)" || exec.timeout != 3*time.Second {
		t.Errorf("ran %q within %v", got, exec.timeout)
	}
	exec.answer.ExitCode, exec.answer.Stdout, exec.answer.Stderr = 2, []byte(strings.Repeat("é", maxOutput)), nil
	r, err = New(exec).Run(t.Context(), here(), command("a"))
	if err != nil || r.Success || len(r.Output) != maxOutput {
		t.Errorf("got %v of %d bytes, %v", r.Success, len(r.Output), err)
	}
	exec.err = errors.New("no such container")
	if _, err = New(exec).Run(t.Context(), here(), command("a")); err == nil ||
		!strings.Contains(err.Error(), "no such container") {
		t.Errorf("got %v", err)
	}
}

func TestExecTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &fakeExec{hang: true, away: true}
		checker := New(exec)
		began := time.Now()
		_, err := checker.Run(t.Context(), here(), command("a"))
		var away RuntimeError
		if !errors.As(err, &away) || time.Since(began) != 15*time.Second ||
			!strings.Contains(err.Error(), "see whether it hangs") {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		checker.Wait()
		if _, err = checker.Run(t.Context(), here(), command("a")); !errors.As(err, &away) || exec.calls.Load() != 2 {
			t.Errorf("got %v, and %d calls", err, exec.calls.Load())
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("probe stops"))
		if _, err := checker.Run(ctx, here(), command("a")); err == nil || err.Error() != "probe stops" {
			t.Errorf("got %v", err)
		}
	})
}

// A runtime may be unable to end a command, or wait for a process that the command has left. The probe fails. The
// command isn't run again before it has ended.
func TestExecThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &fakeExec{hang: true, end: make(chan struct{}), answer: &runtimeapi.ExecSyncResponse{}}
		checker := New(exec)
		ctx, stop := context.WithCancel(t.Context())
		timedOut := Result{Output: `command timed out: "a" timed out after 3s`}
		for run, takes := range []time.Duration{13 * time.Second, 0, 0} {
			began := time.Now()
			r, err := checker.Run(ctx, here(), command("a"))
			want(t, r, err, timedOut)
			if took := time.Since(began); took != takes || exec.calls.Load() != 1 {
				t.Errorf("run %d took %v, after %d calls", run, took, exec.calls.Load())
			}
		}
		replaced := here()
		replaced.ContainerID = "c2"
		r, err := checker.Run(ctx, replaced, command("a"))
		want(t, r, err, timedOut)
		if exec.calls.Load() != 2 {
			t.Errorf("%d calls, want one in each container", exec.calls.Load())
		}
		close(exec.end)
		synctest.Wait()
		r, err = checker.Run(ctx, here(), command("a"))
		want(t, r, err, Result{Success: true})
		// One that ends at the last moment has ended.
		exec.end = make(chan struct{})
		exec.alive = func() { close(exec.end); synctest.Wait() }
		r, err = checker.Run(ctx, here(), command("a"))
		want(t, r, err, Result{Success: true})
		exec.end, exec.alive = nil, nil
		r, err = checker.Run(ctx, here(), command("a"))
		want(t, r, err, timedOut)
		stop()
		checker.Wait()
	})
}

// What the real client makes of a command that timed out, a container that is gone and a runtime that is away.
func TestExecErrors(t *testing.T) {
	runtime := critest.Start(t)
	client := runtime.Client(t, 0)
	checker := New(client)
	if _, err := checker.Run(t.Context(), here(), command("a")); status.Code(err) != codes.NotFound ||
		!strings.HasPrefix(err.Error(), "rpc error: ") {
		t.Errorf("a container that is gone: %v", err)
	}
	late, after := asCRI(t, codes.DeadlineExceeded), time.Duration(0)
	var away RuntimeError
	synctest.Test(t, func(t *testing.T) {
		runtime := New(&fakeExec{err: late, after: &after})
		if _, err := runtime.Run(t.Context(), here(), command("sh", "-c", "x")); !errors.As(err, &away) {
			t.Errorf("a limit of the runtime's own: %v", err)
		}
		after = 3 * time.Second
		r, err := runtime.Run(t.Context(), here(), command("sh", "-c", "x"))
		want(t, r, err, Result{Output: `command timed out: "sh -c x" timed out after 3s`})
	})
	if _, err := New(&fakeExec{err: asCRI(t, codes.Unavailable)}).Run(t.Context(), here(),
		command("a")); !errors.As(err, &away) {
		t.Errorf("a runtime that is away: %v", err)
	}
}

func asCRI(t *testing.T, code codes.Code) error {
	t.Helper()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(code, "as told")
	}))
	path := t.TempDir() + "/cri.sock"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, err := cri.Dial("unix://"+path, cri.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.ExecSync(t.Context(), "c1", nil, time.Second)
	return err
}
