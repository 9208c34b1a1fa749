package check

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
	"kubelot.dev/cri/handler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeExec answers as told, or hangs until its context ends.
type fakeExec struct {
	answer  *runtimeapi.ExecSyncResponse
	err     error
	after   *time.Duration // when it answers; nil for at once
	hang    bool
	away    bool          // the whole runtime hangs
	end     chan struct{} // ends what hangs; may be nil
	calls   int
	command []string
	timeout time.Duration
}

func (f *fakeExec) ExecSync(ctx context.Context, _ string, command []string,
	timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	f.command, f.timeout = command, timeout
	f.calls++
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
	return &runtimeapi.VersionResponse{}, nil
}

func here() Target {
	return Target{ContainerID: "c1", Target: handler.Target{PodIP: "127.0.0.1", Container: &corev1.Container{
		Name: "app", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 81}},
		Env: []corev1.EnvVar{{Name: "A", Value: "x"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}}},
	}}}
}

// patience is how many seconds a probe of this machine has: it answers at once, unless it does other things.
const patience = 60

func command(words ...string) *corev1.Probe {
	return &corev1.Probe{TimeoutSeconds: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: words}}}
}

func want(t *testing.T, r Result, err error, wanted Result) {
	t.Helper()
	if err != nil || r != wanted {
		t.Errorf("got  %+v, %v\nwant %+v", r, err, wanted)
	}
}

func TestExec(t *testing.T) {
	exec := &fakeExec{answer: &runtimeapi.ExecSyncResponse{Stdout: []byte("out "), Stderr: []byte("err")}}
	r, err := New(exec).Run(t.Context(), here(), command("a", "$(A)$(B)$$(A)"))
	want(t, r, err, Result{Success: true, Output: "out err"})
	if got := strings.Join(exec.command, " "); got != "a x$(B)$(A)" || exec.timeout != 3*time.Second {
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
		if _, err = checker.Run(t.Context(), here(), command("a")); !errors.As(err, &away) || exec.calls != 2 {
			t.Errorf("got %v, and %d calls", err, exec.calls)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("probe stops"))
		if _, err := checker.Run(ctx, here(), command("a")); err == nil || err.Error() != "probe stops" {
			t.Errorf("got %v", err)
		}
	})
}

// A runtime may be unable to end a command, or wait for a process that the command has left. The probe fails. The command
// isn't run again before it has ended.
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
			if took := time.Since(began); took != takes || exec.calls != 1 {
				t.Errorf("run %d took %v, after %d calls", run, took, exec.calls)
			}
		}
		replaced := here()
		replaced.ContainerID = "c2"
		r, err := checker.Run(ctx, replaced, command("a"))
		want(t, r, err, timedOut)
		if exec.calls != 2 {
			t.Errorf("%d calls, want one in each container", exec.calls)
		}
		close(exec.end)
		synctest.Wait()
		r, err = checker.Run(ctx, here(), command("a"))
		want(t, r, err, Result{Success: true})
		exec.end = nil
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

func httpGet(t *testing.T, scheme corev1.URIScheme, path string, answer http.HandlerFunc) *corev1.Probe {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.EnableHTTP2 = true
	if scheme == corev1.URISchemeHTTPS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Probe{
		TimeoutSeconds: patience,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path,
			Port: intstr.Parse(u.Port()), Scheme: scheme,
		}},
	}
}

func TestHTTP(t *testing.T) {
	checker := New(nil)
	for code, success := range map[int]bool{
		199: false, 200: true, 204: true, 399: true, 400: false,
		404: false, 503: false,
	} {
		probe := httpGet(t, "", "/", func(w http.ResponseWriter, _ *http.Request) {
			if code == 199 {
				code = 600
			}
			w.WriteHeader(code)
			_, _ = w.Write([]byte("s3cret"))
		})
		r, err := checker.Run(t.Context(), here(), probe)
		if err != nil || r.Success != success || strings.Contains(r.Output, "s3cret") && !r.Warning {
			t.Errorf("%d: %+v, %v", code, r, err)
		}
	}
	var got *http.Request
	probe := httpGet(t, corev1.URISchemeHTTPS, "/a?b=c", func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = w.Write(make([]byte, 1<<20))
	})
	r, err := checker.Run(t.Context(), here(), probe)
	want(t, r, err, Result{Success: true})
	if got.URL.String() != "/a?b=c" || got.Header.Get("User-Agent") != "kube-probe/1.36" ||
		got.Header.Get("Accept") != "*/*" || got.Header.Get("Accept-Encoding") != "" {
		t.Errorf("asked for %s with %v", got.URL, got.Header)
	}
}

func TestHTTPRedirects(t *testing.T) {
	checker := New(nil)
	r, err := checker.Run(t.Context(), here(), httpGet(t, "", "/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/other", http.StatusFound)
		} else {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	want(t, r, err, Result{Output: "HTTP probe failed with statuscode: 418"})
	r, err = checker.Run(t.Context(), here(), httpGet(t, "", "/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://other.example/")
		w.WriteHeader(http.StatusFound)
		_, _ = w.Write([]byte("over there"))
	}))
	want(t, r, err, Result{Success: true, Warning: true, Output: "Probe terminated redirects, Response body: over there"})
	r, err = checker.Run(t.Context(), here(), httpGet(t, "", "/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/", http.StatusFound)
	}))
	if err != nil || r.Success || !strings.Contains(r.Output, "stopped after 10 redirects") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHTTPFailures(t *testing.T) {
	checker := New(nil)
	hang := httpGet(t, "", "/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	hang.TimeoutSeconds = 1
	r, err := checker.Run(t.Context(), here(), hang)
	if err != nil || r.Success ||
		!strings.HasSuffix(r.Output, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)") {
		t.Errorf("%+v, %v", r, err)
	}
	for _, probe := range []corev1.ProbeHandler{
		{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("none")}},
		{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("none")}},
		{GRPC: &corev1.GRPCAction{}},
		{},
	} {
		if _, err := checker.Run(t.Context(), here(), &corev1.Probe{ProbeHandler: probe}); err == nil {
			t.Errorf("%+v runs", probe)
		}
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)
	probe := &corev1.Probe{
		TimeoutSeconds: patience,
		ProbeHandler:   corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}},
	}
	r, err := New(nil).Run(t.Context(), here(), probe)
	want(t, r, err, Result{Success: true})
	listener.Close()
	r, err = New(nil).Run(t.Context(), here(), probe)
	want(t, r, err, Result{Output: "dial tcp 127.0.0.1:" + port.String() + ": connect: connection refused"})
}

// healthServer knows the services "" and "up", and "slow", which answers late.
type healthServer struct {
	health.UnimplementedHealthServer
}

func (healthServer) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	switch r.GetService() {
	case "up":
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	case "":
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	case "slow":
		<-ctx.Done()
	}
	return nil, status.Error(codes.NotFound, "unknown service")
}

func TestGRPC(t *testing.T) {
	start := func(register func(*grpc.Server)) int32 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		register(server)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		return int32(listener.Addr().(*net.TCPAddr).Port)
	}
	run := func(timeout, port int32, service *string) Result {
		r, err := New(nil).Run(t.Context(), here(), &corev1.Probe{
			TimeoutSeconds: timeout,
			ProbeHandler:   corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: service}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	port := start(func(s *grpc.Server) { health.RegisterHealthServer(s, healthServer{}) })
	bare := start(func(*grpc.Server) {})
	name := func(s string) *string { return &s }
	for _, c := range []struct {
		timeout int32
		port    int32
		service *string
		success bool
		output  string
	}{
		{patience, port, name("up"), true, "service healthy"},
		{patience, port, nil, false, `service unhealthy (responded with "NOT_SERVING")`},
		{
			patience, port, name("none"), false,
			"error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
		},
		{1, port, name("slow"), false, "timeout: health rpc did not complete within 1s"},
		{patience, bare, nil, false, "error: this server does not implement the grpc health protocol " +
			"(grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{1, 1, nil, false, `timeout: failed to connect service "127.0.0.1:1" within 1s: context deadline exceeded`},
	} {
		if got := run(c.timeout, c.port, c.service); got.Success != c.success || got.Output != c.output {
			t.Errorf("got  %+v\nwant %v %s", got, c.success, c.output)
		}
	}
}
