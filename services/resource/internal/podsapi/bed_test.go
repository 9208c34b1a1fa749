package podsapi

import (
	"context"
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
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is how long a test waits for what must happen.
const limit = 2 * time.Minute

// source is a Source that the test feeds. A change is taken in before the next one can be sent.
type source struct {
	pods     chan bus.Change[topic.Pod]
	statuses chan bus.Change[topic.Merged]
}

func newSource() *source {
	return &source{make(chan bus.Change[topic.Pod]), make(chan bus.Change[topic.Merged])}
}

func (s *source) Pods(context.Context) (<-chan bus.Change[topic.Pod], error) { return s.pods, nil }

func (s *source) Statuses(context.Context) (<-chan bus.Change[topic.Merged], error) {
	return s.statuses, nil
}

// bed is the API over a socket.
type bed struct {
	t        *testing.T
	source   *source
	registry *prometheus.Registry
	server   *Server
	client   podsv1alpha1.PodsClient
	stop     context.CancelFunc
	end      chan error
}

// newBed serves the API with its own source, or with another one. It has no limit of requests, which endpoint tests.
func newBed(t *testing.T, other Source) *bed {
	t.Helper()
	root := t.TempDir()
	b := &bed{t: t, source: newSource(), registry: prometheus.NewRegistry(), end: make(chan error, 1)}
	metrics, err := NewMetrics(b.registry)
	if err != nil {
		t.Fatal(err)
	}
	if other == nil {
		other = b.source
	}
	server := New(root, Ports{Source: other, Metrics: metrics}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	b.server = server
	server.endpoint.Limiter = rate.NewLimiter(rate.Inf, 0)
	ctx, cancel := context.WithCancel(t.Context())
	b.stop = cancel
	var ran sync.WaitGroup
	ran.Go(func() { b.end <- server.Run(ctx) })
	t.Cleanup(func() { cancel(); ran.Wait() })
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", root+"/pods-api/pods-api.sock")
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		// Fixed windows: a client that doesn't read takes no more than that.
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: limit,
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.client = podsv1alpha1.NewPodsClient(conn)
	return b
}

// context is that of a call.
func (b *bed) context() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	b.t.Cleanup(cancel)
	return ctx
}

// pod sends a change of pod.update.
func (b *bed) pod(c bus.Change[topic.Pod]) { send(b.t, b.source.pods, c) }

// status sends a change of pod.status.
func (b *bed) status(c bus.Change[topic.Merged]) { send(b.t, b.source.statuses, c) }

func send[T any](t *testing.T, to chan<- T, v T) {
	t.Helper()
	select {
	case to <- v:
	case <-time.After(limit):
		t.Fatal("the server doesn't read from its source")
	}
}

// sync has the server know that there is nothing more.
func (b *bed) sync() {
	b.pod(bus.Change[topic.Pod]{Synced: true})
	b.status(bus.Change[topic.Merged]{Synced: true})
}

// update is a pod; version is its resource version and an annotation's value.
func update(uid, version string) bus.Change[topic.Pod] {
	return bus.Change[topic.Pod]{Key: uid, Value: topic.Pod{Lifecycle: topic.Syncing, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid), ResourceVersion: version,
			Annotations: map[string]string{"version": version},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "busybox"}}},
	}}}
}

func gone(uid string) bus.Change[topic.Pod] { return bus.Change[topic.Pod]{Key: uid, Deleted: true} }

// merged is a status.
func merged(uid string, phase corev1.PodPhase, version string) bus.Change[topic.Merged] {
	return bus.Change[topic.Merged]{Key: uid, Value: topic.Merged{
		Ref:             topic.Ref{Namespace: "default", Name: "pod-" + uid, UID: uid},
		ResourceVersion: version, Status: corev1.PodStatus{Phase: phase, HostIP: "10.0.0.1"},
	}}
}

func statusGone(uid string) bus.Change[topic.Merged] {
	return bus.Change[topic.Merged]{Key: uid, Deleted: true}
}

// decode is the pod of the API's bytes.
func decode(t *testing.T, data []byte) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := p.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return p
}

// dropped is the metric.
func (b *bed) dropped() float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_pod_watch_events_dropped_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	b.t.Fatal("there is no metric")
	return 0
}
