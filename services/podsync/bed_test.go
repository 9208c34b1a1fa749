package podsync

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/source"
)

const testImage = "docker.io/library/busybox:1.36"

// bed is the dispatcher with its workers on a fake runtime and a bus in memory, all in a synctest bubble. The test is
// its pod sources and the daemons that describe the node.
type bed struct {
	t      *testing.T
	fake   *critest.Runtime
	client *cri.Client
	bus    *bustest.Bus
	others *bus.Conn
	dir    string
	sets   chan<- source.Set
	labels map[string]string // of the Node
	// configure changes the configuration; nil for none.
	configure func(*config.Config)
	// cgroupRoot is a cgroup of the test's own; empty for none.
	cgroupRoot string
	registry   *prometheus.Registry
	// prepare changes the daemon before it runs; nil for not. loop are its tasks, where a test prepares that.
	prepare func(*Service)
	loop    *tasks

	mu sync.Mutex
	// onHealth is called where the daemon reports its health; nil for nothing.
	onHealth func()
	state    topic.HealthState
	message  string
	events   []topic.Event
}

// Set implements daemon.HealthReporter.
func (b *bed) Set(state topic.HealthState, message string) {
	b.mu.Lock()
	b.state, b.message = state, message
	hook := b.onHealth
	b.mu.Unlock()
	if hook != nil {
		hook()
	}
}

func (b *bed) health() (topic.HealthState, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.message
}

// Record implements daemon.EventRecorder.
func (b *bed) Record(e topic.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// event is the first Event with the reason; its zero value where there is none.
func (b *bed) event(reason string) topic.Event {
	if all := b.told(reason); len(all) > 0 {
		return all[0]
	}
	return topic.Event{}
}

// told are the Events with the reason.
func (b *bed) told(reason string) (all []topic.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Reason == reason {
			all = append(all, e)
		}
	}
	return all
}

// inBubble runs the test on a bed.
func inBubble(t *testing.T, test func(b *bed)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, dir: dir, bus: bustest.New(), fake: critest.Start(t, critest.InMemory())}
		b.client = b.fake.Client(t, 0)
		b.others = b.bus.Conn("others")
		t.Cleanup(b.others.Close)
		b.fake.AddImage(testImage, 1<<20)
		// What the runtime does takes time, or no reading would be newer than the one before.
		for _, call := range []string{
			"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer",
			"StopContainer", "RemoveContainer",
		} {
			b.fake.On(call, func(context.Context, any) error { time.Sleep(time.Millisecond); return nil })
		}
		test(b)
	})
}

// fake is a source that the test itself delivers for, on the channel that the daemon gives to it.
type fake struct {
	name topic.Source
	sets chan<- (chan<- source.Set)
}

func (f fake) Name() topic.Source { return f.name }

func (f fake) Run(ctx context.Context, sets chan<- source.Set) error {
	select {
	case f.sets <- sets:
	case <-ctx.Done():
	}
	return nil
}

// start starts podsync with the sources; stop ends it.
func (b *bed) start(sources ...topic.Source) (stop func()) {
	b.t.Helper()
	no := false
	cfg := &config.Config{NodeName: "n1", RootDir: filepath.Join(b.dir, "kubelet"), PodLogsDir: filepath.Join(b.dir,
		"pods"), ContainerLogsDir: filepath.Join(b.dir, "containers")}
	perQOS := b.cgroupRoot != "" // without a root of the test's own this machine's cgroups are left alone
	cfg.Kubelet.CgroupsPerQOS, cfg.Kubelet.FailCgroupV1, cfg.Kubelet.CgroupRoot = &perQOS, &no, b.cgroupRoot
	cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 5 * time.Minute}
	if b.configure != nil {
		b.configure(cfg)
	}
	conn := b.bus.Conn("podsync")
	b.registry = prometheus.NewRegistry()
	clients, given := Clients{Runtime: b.client, Sources: []source.Source{}}, make(chan (chan<- source.Set), len(sources))
	for _, name := range sources {
		clients.Sources = append(clients.Sources, fake{name, given})
	}
	s, err := New(daemon.Env{
		Config: cfg, Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: b.registry, Health: b, Events: b,
	}, clients)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.prepare != nil {
		b.prepare(s)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for range sources {
		b.sets = <-given
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("podsync ended with %v", err)
		}
		conn.Close()
	})
	b.t.Cleanup(stop)
	b.settle()
	return stop
}

// deliver is a source's new set.
func (b *bed) deliver(from topic.Source, pods ...*corev1.Pod) {
	b.sets <- source.Set{Source: from, Pods: pods}
	b.settle()
}

// settle gives everything that is to happen now the time it takes.
func (b *bed) settle() { b.pass(time.Second) }

// pass lets time pass.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// set states a value as another daemon does.
func set[T any](b *bed, t bus.State[T], key string, v T) {
	b.t.Helper()
	w := t.Writer(b.others)
	if err := errors.Join(w.Set(key, v), w.Flush(b.t.Context())); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
}

// get is what the bus retains under the key.
func get[T any](b *bed, t bus.State[T], key string) (v T, ok bool) {
	b.t.Helper()
	all, err := t.Read(b.t.Context(), b.others)
	if err != nil {
		b.t.Fatal(err)
	}
	v, ok = all[key]
	return v, ok
}

// node tells what podsync must know of the node, which takes so many pods.
func (b *bed) node(pods int64) { b.nodeOf("node-1", pods) }

// nodeOf states a Node with the UID; without one it isn't registered.
func (b *bed) nodeOf(uid types.UID, pods int64) {
	b.t.Helper()
	set(b, topic.NodeMachine, "", topic.Machine{NumCores: 2, MemoryBytes: 1 << 30, PIDLimit: 4000, CgroupVersion: 2})
	own := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	set(b, topic.NodeObject, "", corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: uid, Labels: b.labels},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
			Capacity:  own,
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
				corev1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI),
			},
		},
	})
}

// deletedWithin is the pod as the API server has it once it is deleted with so many seconds of grace.
func deletedWithin(p *corev1.Pod, grace int64) *corev1.Pod {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &grace
	return p
}

// running are the names of the pods with a running container.
func (b *bed) running() []string {
	b.t.Helper()
	containers, err := b.client.ListContainers(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, c := range containers {
		if c.GetState() == 1 {
			names = append(names, c.GetLabels()["io.kubernetes.pod.name"])
		}
	}
	slices.Sort(names)
	return names
}

func (b *bed) wantRunning(names ...string) {
	b.t.Helper()
	if got := b.running(); !slices.Equal(got, names) {
		b.t.Errorf("containers run of the pods %v, want %v", got, names)
	}
}

// wantFailed checks the status of a pod that the node has refused or ended.
func (b *bed) wantFailed(uid, reason string) {
	b.t.Helper()
	s, _ := get(b, topic.StatusPatch, uid)
	if s.Status.Phase != corev1.PodFailed || s.Status.Reason != reason {
		b.t.Errorf("pod %s is %s, reason %q (%s); want Failed, %s", uid, s.Status.Phase, s.Status.Reason,
			s.Status.Message, reason)
	}
}

func pod(name, uid string) *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "app", Image: testImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"sleep", "1000"},
			}},
		},
	}
}

func onPort(p *corev1.Pod, port int32) *corev1.Pod {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: port}}
	return p
}
