package check

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kubelot.dev/cri/handler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	hang.TimeoutSeconds = 3 // in which it has asked
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
		return nil, status.FromContextError(ctx.Err()).Err()
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
		{3, port, name("slow"), false, "timeout: health rpc did not complete within 3s"},
		{patience, bare, nil, false, "error: this server does not implement the grpc health protocol " +
			"(grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{1, 1, nil, false, `timeout: failed to connect service "127.0.0.1:1" within 1s: context deadline exceeded`},
	} {
		if got := run(c.timeout, c.port, c.service); got.Success != c.success || got.Output != c.output {
			t.Errorf("got  %+v\nwant %v %s", got, c.success, c.output)
		}
	}
}
