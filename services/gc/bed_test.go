package gc

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/critest"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/gc/internal/logs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib     = 1 << 20
	busybox = "docker.io/library/busybox:1.36"
)

// bed is the daemon on a bus and a runtime in memory, with signals, statistics and a podsync that are as told, in a
// synctest bubble.
type bed struct {
	t       *testing.T
	bus     *bustest.Bus
	podsync *bus.Conn
	runtime *critest.Runtime
	pods    *bus.Writer[topic.Pod]
	seen    *bus.Writer[topic.PodObservation]
	sources *bus.Writer[topic.Sources]
	config  *config.Config
	began   time.Time
	service *Service // while it runs

	// stats answers in place of what follows.
	stats func(context.Context, topic.SummaryRequest) (statsv1alpha1.Summary, error)

	mu      sync.Mutex
	inodes  int64 // available; zero where nobody counts them
	memory  int64 // available, in bytes
	disk    int64
	pids    int64
	usage   map[string]int64 // of memory, by pod
	tasks   map[string]int64
	volumes map[string]int64
	// former are the volumes as they were counted at countedAt, which is told where it isn't too old for the caller, and
	// until countable.
	former               map[string]int64
	countedAt, countable time.Time
	evicted              []string // "SECOND NAME GRACE DISRUPTION"
	message              string
	events               []string
	health               string
	deaf                 bool      // stats doesn't answer
	empty                time.Time // until then podsync has no pods
	think                time.Duration
	allowed              time.Duration // how old the figures may be that were asked for last
	reads                int           // of what isn't a disk
	hang                 time.Duration // of the disk
	lost                 bool          // the runtime doesn't say where its images are
	sandboxImage         string
	mute                 int // so many answers of podsync's about evictions are lost
}

func inBubble(t *testing.T, test func(b *bed)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{
			t: t, bus: bustest.New(), runtime: critest.Start(t, critest.InMemory()), config: testConfig(dir), began: time.Now(),
			memory: 1000 * mib, disk: 1000 * mib, pids: 1000, usage: map[string]int64{}, tasks: map[string]int64{},
			volumes: map[string]int64{},
		}
		b.runtime.AddImage(busybox, 100*mib)
		pleg, stats := b.bus.Conn("pleg"), b.bus.Conn("stats")
		b.podsync = b.bus.Conn("podsync")
		b.pods, b.sources = topic.PodUpdate.Writer(b.podsync), topic.PodSources.Writer(b.podsync)
		b.seen = topic.PLEGEvent.Writer(pleg)
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { _ = topic.PodEvict.Serve(ctx, b.podsync, b.evict) })
		serving.Go(func() { _ = topic.StatsSummary.Serve(ctx, stats, b.summary) })
		synctest.Wait()
		test(b)
		cancel()
		serving.Wait()
		for _, c := range []*bus.Conn{b.podsync, pleg, stats} {
			c.Close()
		}
	})
}

func testConfig(dir string) *config.Config {
	high, low, files, workers := int32(85), int32(80), int32(5), int32(1)
	return &config.Config{
		NodeName: "n", RootDir: dir, RunDir: filepath.Join(dir, "run"), PodLogsDir: filepath.Join(dir, "podlogs"),
		ContainerLogsDir: filepath.Join(dir, "containers"), DeadContainers: config.DeadContainers{PerContainer: 1, Total: -1},
		Kubelet: kubeletv1beta1.KubeletConfiguration{
			EvictionHard:                     map[string]string{"memory.available": "100Mi", "nodefs.available": "100Mi"},
			EvictionPressureTransitionPeriod: metav1.Duration{Duration: time.Minute},
			ImageGCHighThresholdPercent:      &high, ImageGCLowThresholdPercent: &low,
			ImageMinimumGCAge:   metav1.Duration{Duration: time.Minute},
			ContainerLogMaxSize: "1Ki", ContainerLogMaxFiles: &files, ContainerLogMaxWorkers: &workers,
			ContainerLogMonitorInterval: &metav1.Duration{Duration: 10 * time.Second},
		},
	}
}

// run runs the daemon while work does.
func (b *bed) run(work func()) {
	b.t.Helper()
	synctest.Wait() // until the bus has what was published
	conn := b.bus.Conn("gc")
	env := daemon.Env{
		Config: b.config, Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Health: b, Events: b,
	}
	client := b.runtime.Client(b.t, 0)
	s, err := New(Ports{
		Containers: client, Images: fsInfo{client, b}, Logs: logs.Rotator{Runtime: client},
		Sensor: b, Alarm: b,
	}, env)
	if err != nil {
		b.t.Fatal(err)
	}
	b.service = s
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	work()
	cancel()
	if err := <-done; err != nil {
		b.t.Error(err)
	}
	conn.Close()
	_ = client.Close()
}

// set changes what the bed tells.
func (b *bed) set(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
}

func (b *bed) get(what func() string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return what()
}

func (b *bed) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// pod publishes a pod that requests so much memory.
func (b *bed) pod(name string, request string, lifecycle topic.Lifecycle, change ...func(*corev1.Pod)) {
	b.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	p.Spec.Containers = []corev1.Container{{
		Name: "app", Image: busybox,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(
			request)}},
	}}
	for _, f := range change {
		f(p)
	}
	b.must(b.pods.Set(name, topic.Pod{Pod: p, Source: topic.SourceAPI, Lifecycle: lifecycle}))
}

// data gives a pod a volume, whose usage is counted.
func data(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{
		Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	}}
}

// runs says that the runtime has a sandbox of the pod.
func (b *bed) runs(name string) {
	b.t.Helper()
	ref := topic.Ref{Namespace: "default", Name: name, UID: name}
	b.must(b.seen.Set(name, topic.PodObservation{Ref: ref, Sandboxes: []topic.Sandbox{{ID: name, Ready: true}}}))
}

// released says that podsync has ended the pod and freed what it used.
func (b *bed) released(name string) {
	b.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	b.must(b.pods.Set(name, topic.Pod{Pod: p, Source: topic.SourceAPI, Lifecycle: topic.Terminated, Released: true}))
}

func (b *bed) ready() { b.must(b.sources.Set("", topic.Sources{Ready: true})) }

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// dead makes a container of a pod in the runtime that has exited.
func (b *bed) dead(uid string, runs int) (sandbox string) {
	b.t.Helper()
	ctx, client := b.t.Context(), b.runtime.Client(b.t, 0)
	meta := &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid}
	own := map[string]string{labels.PodUID: uid, labels.PodName: uid, labels.PodNamespace: "default"}
	boxConfig := &runtimeapi.PodSandboxConfig{Metadata: meta, Labels: own}
	sandbox, err := client.RunPodSandbox(ctx, boxConfig, "")
	b.must(err)
	for run := range runs {
		c := maps.Clone(own)
		c[labels.ContainerName] = "app"
		id, err := client.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: uint32(run)},
			Image:    &runtimeapi.ImageSpec{Image: busybox}, Labels: c,
			Annotations: map[string]string{labels.RestartCount: fmt.Sprint(run)}, Command: []string{"true"},
		}, boxConfig)
		b.must(err)
		b.must(client.StartContainer(ctx, id))
		time.Sleep(time.Millisecond)
	}
	_ = client.Close()
	return sandbox
}

// inRuntime counts containers and sandboxes.
func (b *bed) inRuntime() string {
	b.t.Helper()
	client := b.runtime.Client(b.t, 0)
	containers, err := client.ListContainers(b.t.Context(), nil)
	b.must(err)
	sandboxes, err := client.ListPodSandbox(b.t.Context(), nil)
	b.must(err)
	_ = client.Close()
	return fmt.Sprintf("%d containers, %d sandboxes", len(containers), len(sandboxes))
}

func (b *bed) pressure() topic.Pressure {
	b.t.Helper()
	var p topic.Pressure
	if data, ok := b.bus.Retained()["node.pressure"]; ok {
		b.must(json.Unmarshal(data, &p))
	}
	return p
}

// plans are the reasons of gc.plan for the object.
func (b *bed) plans(object string) (reasons string) {
	b.t.Helper()
	cli := b.bus.Conn("cli")
	defer cli.Close()
	plan, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{})
	b.must(err)
	for _, d := range plan.Decisions {
		if d.Object == object {
			reasons += d.Reason
		}
	}
	return reasons
}

func (b *bed) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

func (b *bed) evictions() string {
	return b.get(func() string { return strings.Join(b.evicted, ", ") })
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
