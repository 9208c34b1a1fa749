package cri_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDialRefusesWhatIsNoSocket(t *testing.T) {
	for endpoint, want := range map[string]string{
		"":                          "containerRuntimeEndpoint",
		"tcp://127.0.0.1:1234":      "is not a unix socket",
		"unix://relative/path.sock": "no absolute path",
		"relative.sock":             "no absolute path",
		"http://x":                  "is not a unix socket",
	} {
		_, err := cri.Dial(endpoint, cri.Options{Timeout: time.Second})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Dial(%q) = %v, want an error with %q", endpoint, err, want)
		}
	}
	_, err := cri.Dial("unix:///run/a.sock", cri.Options{Timeout: time.Second, ImageEndpoint: "tcp://x"})
	if err == nil || !strings.Contains(err.Error(), "image service") {
		t.Errorf("a wrong image endpoint: %v", err)
	}
	if _, err = cri.Dial("unix:///run/a.sock", cri.Options{}); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("no timeout: %v", err)
	}
}

func TestAbsentSocket(t *testing.T) {
	endpoint := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	client := dial(t, endpoint, cri.Options{})
	_, err := client.Version(t.Context())
	if !cri.IsUnavailable(err) {
		t.Fatalf("an absent runtime answered %v", err)
	}
	for _, part := range []string{"CRI Version", endpoint, "no such file", "check that it runs"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q doesn't say %q", err, part)
		}
	}
}

// A process that accepts connections and says nothing, as a stopped containerd does.
func TestSilentSocket(t *testing.T) {
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client := dial(t, listener.Addr().String(), cri.Options{Timeout: 100 * time.Millisecond})
	_, err = client.Status(t.Context(), false)
	if !cri.IsDeadline(err) || !strings.Contains(err.Error(), "gave no answer within 100ms") {
		t.Errorf("a silent runtime: %v", err)
	}
	// A caller with less patience than the configuration: pleg asks for the runtime's health within seconds.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = client.Status(ctx, false)
	if !cri.IsDeadline(err) ||
		!strings.Contains(err.Error(), listener.Addr().String()+" gave no answer in time; see whether it hangs") {
		t.Errorf("a silent runtime and a hasty caller: %v", err)
	}
}

func TestHangingCall(t *testing.T) { synctest.Test(t, testHangingCall) }

func testHangingCall(t *testing.T) {
	fake := critest.Start(t, critest.InMemory())
	fake.On("ListContainers", critest.Hang)
	client := fake.Client(t, 50*time.Millisecond)
	_, err := client.ListContainers(t.Context(), nil)
	if !cri.IsDeadline(err) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("a hanging call: %v", err)
	}
	if _, err := client.ListPodSandbox(t.Context(), nil); err != nil {
		t.Errorf("the other calls suffer: %v", err)
	}
	cause := errors.New("the daemon stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := client.ListContainers(ctx, nil); !errors.Is(err, cause) || cri.IsDeadline(err) {
		t.Errorf("a cancelled call says %v, want its cause", err)
	}
}

func TestReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := critest.Start(t, critest.InMemory())
		client := fake.Client(t, 0)
		if _, err := client.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		fake.Down()
		for range 60 { // the connection's back-off grows meanwhile
			if _, err := client.Version(t.Context()); !cri.IsUnavailable(err) {
				t.Fatalf("a runtime that is down answered %v", err)
			}
			<-time.After(time.Second)
		}
		fake.Up(t)
		<-time.After(150 * time.Millisecond)
		if _, err := client.Version(t.Context()); err != nil {
			t.Errorf("150 ms after the runtime's return: %v", err)
		}
	})
}

func TestErrorKeepsCodeAndObject(t *testing.T) {
	fake := critest.Start(t)
	fake.On("StopContainer", func(context.Context, any) error { return status.Error(codes.ResourceExhausted, "too much") })
	err := fake.Client(t, 0).StopContainer(t.Context(), "abc", time.Second)
	if got, want := err.Error(), "CRI StopContainer abc: too much"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("code %s got lost", status.Code(err))
	}
}

func TestStopContainerOutlastsGrace(t *testing.T) { synctest.Test(t, testStopContainerOutlastsGrace) }

func testStopContainerOutlastsGrace(t *testing.T) {
	fake := critest.Start(t, critest.InMemory())
	var got time.Duration
	var seconds int64
	fake.On("StopContainer", func(ctx context.Context, req any) error {
		deadline, _ := ctx.Deadline()
		got, seconds = time.Until(deadline), req.(*runtimeapi.StopContainerRequest).GetTimeout()
		return nil
	})
	if err := fake.Client(t, 2*time.Minute).StopContainer(t.Context(), "x", 90500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if seconds != 91 || got < 209*time.Second || got > 211*time.Second {
		t.Errorf("grace of 90.5 s: sent %d s with %s to answer, want 91 s and 210.5 s", seconds, got)
	}
}

// containerd answers so when its shim says nothing for 2 s. That is no silence of the runtime.
func TestARuntimesOwnDeadlineIsItsAnswer(t *testing.T) {
	fake := critest.Start(t)
	fake.On("ContainerStatus", func(context.Context, any) error {
		return status.Error(codes.DeadlineExceeded, "ttrpc: the shim is silent")
	})
	_, err := fake.Client(t, 0).ContainerStatus(t.Context(), "abc")
	if got, want := err.Error(), "CRI ContainerStatus abc: ttrpc: the shim is silent"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if !cri.IsDeadline(err) {
		t.Errorf("%v isn't a deadline any more", err)
	}
}

func TestCheckpointsTakeTheTimeoutOfCallsOrLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := critest.Start(t, critest.InMemory())
		var deadline time.Time
		var seconds int64
		fake.On("CheckpointContainer", func(ctx context.Context, req any) error {
			deadline, _ = ctx.Deadline()
			seconds = req.(*runtimeapi.CheckpointContainerRequest).GetTimeout()
			return errors.New("refused")
		})
		for timeout, want := range map[time.Duration]time.Duration{
			0: 2 * time.Minute, time.Second: 2 * time.Minute, time.Hour: time.Hour,
		} {
			_ = fake.Client(t, 2*time.Minute).CheckpointContainer(t.Context(), "x", "/x.tar", timeout)
			left := time.Until(deadline).Round(time.Second)
			if seconds != int64(want/time.Second) || left != want {
				t.Errorf("timeout %s: sent %d s with %s to answer, want %s for both", timeout, seconds, left, want)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	fake := critest.Start(t)
	registry := prometheus.NewPedanticRegistry()
	first := dial(t, fake.Endpoint(), cri.Options{Metrics: registry})
	second := dial(t, fake.Endpoint(), cri.Options{Metrics: registry})
	for _, client := range []*cri.Client{first, second} {
		if _, err := client.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_ = second.StartContainer(t.Context(), "none")
	// Who gives up a call has no error of the runtime.
	ctx, cancel := context.WithCancel(t.Context())
	fake.On("StopPodSandbox", func(ctx context.Context, _ any) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if err := second.StopPodSandbox(ctx, "given up"); err == nil {
		t.Error("a call that was given up has no error")
	}
	late, cancelLate := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancelLate()
	fake.On("RemovePodSandbox", func(ctx context.Context, _ any) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := second.RemovePodSandbox(late, "late"); err == nil {
		t.Error("a call that took too long has no error")
	}
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kubelet_runtime_operations_errors_total Failed calls to the container runtime by operation type.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="remove_podsandbox"} 1
kubelet_runtime_operations_errors_total{operation_type="start_container"} 1
# HELP kubelet_runtime_operations_total Calls to the container runtime by operation type.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="remove_podsandbox"} 1
kubelet_runtime_operations_total{operation_type="start_container"} 1
kubelet_runtime_operations_total{operation_type="stop_podsandbox"} 1
kubelet_runtime_operations_total{operation_type="version"} 2
`), "kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total")
	if err != nil {
		t.Error(err)
	}
}

func TestEventsOfARuntimeWithoutThem(t *testing.T) {
	fake := critest.Start(t, critest.WithoutEvents())
	err := fake.Client(t, 0).GetContainerEvents(t.Context(), func(*runtimeapi.ContainerEventResponse) {})
	if !cri.IsUnimplemented(err) {
		t.Errorf("GetContainerEvents = %v, want unimplemented", err)
	}
}

// A runtime that doesn't know a sandbox's size refuses none.
func TestASandboxSizeThatTheRuntimeDoesNotKnow(t *testing.T) {
	fake := critest.Start(t)
	client := fake.Client(t, 0)
	for _, answer := range []error{
		status.Error(codes.Unimplemented, "unknown method"), status.Error(codes.Unknown, "not implemented yet"),
		status.Error(codes.Internal, "no memory"),
	} {
		fake.On("UpdatePodSandboxResources", func(context.Context, any) error { return answer })
		err := client.UpdatePodSandboxResources(t.Context(), "s", nil, nil)
		if refused := status.Code(answer) == codes.Internal; refused != (err != nil) {
			t.Errorf("%v becomes %v", answer, err)
		}
	}
}

// blank answers everything with nothing.
type blank struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (blank) RunPodSandbox(context.Context,
	*runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	return &runtimeapi.RunPodSandboxResponse{}, nil
}

func (blank) PodSandboxStatus(context.Context,
	*runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{}, nil
}

func (blank) CreateContainer(context.Context,
	*runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	return &runtimeapi.CreateContainerResponse{}, nil
}

func (blank) ContainerStatus(context.Context,
	*runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{}, nil
}

// A runtime that says nothing of a container hasn't said that it is gone, or one that runs would be started again.
func TestEmptyAnswersAreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blank.sock")
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, blank{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, ctx := dial(t, "unix://"+path, cri.Options{}), t.Context()
	for name, call := range map[string]func() error{
		"RunPodSandbox": func() error {
			_, err := client.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{}, "")
			return err
		},
		"PodSandboxStatus": func() error { _, err := client.PodSandboxStatus(ctx, "s"); return err },
		"CreateContainer":  func() error { _, err := client.CreateContainer(ctx, "s", nil, nil); return err },
		"ContainerStatus":  func() error { _, err := client.ContainerStatus(ctx, "c"); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "empty") {
			t.Errorf("%s: %v, want an error that says that the answer is empty", name, err)
		}
	}
}

func dial(t *testing.T, endpoint string, options cri.Options) *cri.Client {
	t.Helper()
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	client, err := cri.Dial(endpoint, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
