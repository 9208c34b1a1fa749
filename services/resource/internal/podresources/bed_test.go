package podresources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a Source as the test has it.
type source struct {
	mu          sync.Mutex
	pods        []Pod
	allocatable Resources
	err         error
}

func (s *source) Pods(context.Context) ([]Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods, s.err
}

func (s *source) Allocatable(context.Context) (Resources, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocatable, s.err
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// pod is a pod with the containers; a name that begins with "init-" is an init container's, with "side-" a sidecar's.
func pod(namespace, name string, containers ...string) Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name),
	}}
	for _, c := range containers {
		switch c[:5] {
		case "init-":
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c})
		case "side-":
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c, RestartPolicy: &always})
		default:
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
	}
	return Pod{
		Update: topic.Pod{Pod: p, Source: topic.SourceAPI, Lifecycle: topic.Syncing}, Phase: corev1.PodRunning,
		Containers: map[string]Resources{},
	}
}

// bed is the API over a socket.
type bed struct {
	t        *testing.T
	source   *source
	registry *prometheus.Registry
	conn     *grpc.ClientConn
}

// newBed serves the API. It has no limit of requests, which endpoint tests.
func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOf(t, Ports{})
}

// newBedOf serves the API with ports that lack the source and the metrics.
func newBedOf(t *testing.T, ports Ports) *bed {
	t.Helper()
	root := t.TempDir()
	b := &bed{t: t, source: &source{}, registry: prometheus.NewRegistry()}
	metrics, err := NewMetrics(b.registry)
	if err != nil {
		t.Fatal(err)
	}
	ports.Source, ports.Metrics = b.source, metrics
	server := New(root, ports, slog.New(slog.NewTextHandler(t.Output(), nil)))
	server.endpoint.Limiter = rate.NewLimiter(rate.Inf, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var ran sync.WaitGroup
	ran.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); ran.Wait() })
	b.conn, err = grpc.NewClient("passthrough:///test",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", root+"/pod-resources/kubelet.sock")
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: 30 * time.Second,
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.conn.Close() })
	return b
}

// context is that of a call.
func (b *bed) context() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	b.t.Cleanup(cancel)
	return ctx
}

// counted compares the metrics that aren't 0: family and version without the common prefix, such as "errors_get v1".
func (b *bed) counted(want map[string]float64) {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) != 1 || m.GetLabel()[0].GetName() != "server_api_version" {
				b.t.Errorf("%s has the labels %v", f.GetName(), m.GetLabel())
				continue
			}
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	for name, n := range want {
		full := "kubelet_pod_resources_endpoint_" + name
		if got[full] != n {
			b.t.Errorf("%s is %v, want %v", full, got[full], n)
		}
		delete(got, full)
	}
	if len(got) > 0 {
		b.t.Errorf("there are too: %v", got)
	}
}

var errNotYet = errors.New("the bus is away")

// device is a device with its NUMA nodes.
func device(resource string, id int, nodes ...int) Device {
	return Device{Resource: resource, ID: fmt.Sprintf("dev%d", id), NUMANodes: nodes}
}
