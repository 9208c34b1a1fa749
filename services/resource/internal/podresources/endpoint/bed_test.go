package endpoint

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is how long a test waits for what must happen.
const limit = 2 * time.Minute

// api is an API with a request and a stream.
type api struct {
	podsv1alpha1.UnimplementedPodsServer
	// hang is closed to end a request for the pod "hang", which doesn't end with its context. It says that it has begun.
	hang, begun chan struct{}
	// running counts the requests that have begun and not ended.
	running atomic.Int32
}

func (a *api) GetPod(ctx context.Context, r *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	a.running.Add(1)
	defer a.running.Add(-1)
	switch r.GetPodUID() {
	case "wait":
		close(a.begun)
		<-ctx.Done()
	case "hang":
		close(a.begun)
		select {
		case <-a.hang:
		case <-time.After(limit):
		}
	}
	return &podsv1alpha1.GetPodResponse{Pod: []byte(r.GetPodUID())}, nil
}

func (a *api) WatchPods(_ *podsv1alpha1.WatchPodsRequest,
	stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent],
) error {
	return stream.Send(&podsv1alpha1.WatchPodsEvent{})
}

// running is an endpoint that runs.
type running struct {
	t    *testing.T
	path string
	api  *api
	stop context.CancelFunc
	end  chan error
}

// run runs the endpoint at the path. Options change it; without them it has no limit of requests.
func run(t *testing.T, path string, options ...func(*Endpoint)) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{
		t: t, path: path, stop: cancel, end: make(chan error, 1),
		api: &api{hang: make(chan struct{}), begun: make(chan struct{})},
	}
	e := &Endpoint{
		Path: path, Limiter: rate.NewLimiter(rate.Inf, 0), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Register: func(s grpc.ServiceRegistrar) { podsv1alpha1.RegisterPodsServer(s, r.api) },
	}
	for _, change := range options {
		change(e)
	}
	var ran sync.WaitGroup
	ran.Go(func() { r.end <- e.Run(ctx) })
	t.Cleanup(func() { cancel(); ran.Wait() })
	return r
}

// client connects. Its calls wait for the server.
func (r *running) client() podsv1alpha1.PodsClient { return client(r.t, r.path) }

func client(t *testing.T, path string) podsv1alpha1.PodsClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: limit,
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return podsv1alpha1.NewPodsClient(conn)
}

// get asks for a pod, whose name is the answer.
func get(t *testing.T, c podsv1alpha1.PodsClient, pod string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	answer, err := c.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: pod})
	if err == nil && string(answer.GetPod()) != pod {
		t.Errorf("the answer is %.80q, want %.80q", answer.GetPod(), pod)
	}
	return err
}

// up waits until the endpoint serves.
func (r *running) up() {
	r.t.Helper()
	if err := get(r.t, r.client(), "a"); err != nil {
		r.t.Fatal(err)
	}
}

// down ends it.
func (r *running) down() {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.end:
		if err != nil {
			r.t.Fatal(err)
		}
	case <-time.After(limit):
		r.t.Fatal("Run has not ended")
	}
}

// socketPath is the path of a socket in a directory that isn't there yet.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "pods", "a.sock")
}
