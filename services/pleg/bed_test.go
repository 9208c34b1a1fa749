package pleg

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const image = "docker.io/library/busybox:1.36"

// bed is pleg on a fake runtime and a bus in memory, all in a synctest bubble.
type bed struct {
	t        *testing.T
	fake     *critest.Runtime
	bus      *bustest.Bus
	client   *cri.Client
	wrap     func(*cri.Client) Runtime // what pleg talks to; nil for the client itself
	registry *prometheus.Registry
	health   healthLog
}

type healthLog struct {
	mu    sync.Mutex
	state topic.HealthState
	text  string
}

func (h *healthLog) Set(state topic.HealthState, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.text = state, message
}

func (h *healthLog) get() (topic.HealthState, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.text
}

// inBubble runs test with a bed in a bubble; run starts a pleg, which the end of the bubble stops.
func inBubble(t *testing.T, test func(b *bed), options ...critest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, bus: bustest.New(), fake: critest.Start(t, append(options, critest.InMemory())...)}
		b.bus.Restrict(Contract)
		b.fake.AddImage(image, 1<<20)
		b.client = b.fake.Client(t, 0)
		test(b)
	})
}

// run starts a pleg; stop ends it and waits.
func (b *bed) run() (stop func()) {
	b.t.Helper()
	b.registry = prometheus.NewPedanticRegistry()
	conn := b.bus.Conn("pleg")
	env := daemon.Env{Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: b.registry, Health: &b.health}
	ctx, cancel := context.WithCancel(b.t.Context())
	end := make(chan error, 1)
	var runtime Runtime = b.client
	if b.wrap != nil {
		runtime = b.wrap(b.client)
	}
	service := New(runtime, env, Options{MaxImages: 2})
	go func() { end <- service.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-end; err != nil {
				b.t.Errorf("Run = %v", err)
			}
			conn.Close()
		})
	}
	b.t.Cleanup(stop)
	b.settle()
	return stop
}

// settle lets everything that can happen at once happen.
func (b *bed) settle() {
	synctest.Wait()
}

// after lets d pass.
func (b *bed) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// pod is what the bus retains of a pod; nil where that is nothing.
func (b *bed) pod(uid string) *topic.PodObservation {
	b.t.Helper()
	data, ok := b.bus.Retained()["pleg.event."+uid]
	if !ok {
		return nil
	}
	var seen topic.PodObservation
	if err := json.Unmarshal(data, &seen); err != nil {
		b.t.Fatal(err)
	}
	return &seen
}

func (b *bed) node() topic.Runtime {
	b.t.Helper()
	var node topic.Runtime
	if err := json.Unmarshal(b.bus.Retained()["node.runtime"], &node); err != nil {
		b.t.Fatal(err)
	}
	return node
}

func config(uid string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: uid},
		Labels:   map[string]string{labels.PodUID: uid, labels.PodName: "web", labels.PodNamespace: "shop"},
	}
}

func (b *bed) sandbox(uid string) string {
	b.t.Helper()
	id, err := b.client.RunPodSandbox(b.t.Context(), config(uid), "")
	b.must(err)
	return id
}

func (b *bed) container(uid, box, name string) string {
	b.t.Helper()
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image},
		Labels: map[string]string{labels.PodUID: uid, labels.ContainerName: name},
	}
	id, err := b.client.CreateContainer(b.t.Context(), box, c, config(uid))
	b.must(err)
	b.must(b.client.StartContainer(b.t.Context(), id))
	return id
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) wantState(uid string, want topic.ContainerState) {
	b.t.Helper()
	seen := b.pod(uid)
	if seen == nil || len(seen.Containers) == 0 || seen.Containers[0].State != want {
		b.t.Fatalf("pod %s is on the bus as %+v, want its newest container %s", uid, seen, want)
	}
}
