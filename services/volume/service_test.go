package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mounttest"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	goleak.VerifyTestMain(m)
}

// objects is a Watched in memory.
type objects[T any] struct {
	mu      sync.Mutex
	byName  map[string]*T
	held    map[string][]types.NamespacedName
	changes chan types.NamespacedName
}

func newObjects[T any]() *objects[T] {
	return &objects[T]{
		byName: map[string]*T{}, held: map[string][]types.NamespacedName{},
		changes: make(chan types.NamespacedName, 16),
	}
}

func (o *objects[T]) Get(_ context.Context, key types.NamespacedName) (*T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.byName[key.String()]; v != nil {
		return v, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("things"), key.Name)
}

func (o *objects[T]) Hold(owner string, keys ...types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[owner] = keys
	if len(keys) == 0 {
		delete(o.held, owner)
	}
}

func (o *objects[T]) Changes() <-chan types.NamespacedName { return o.changes }

func (o *objects[T]) set(name string, v *T) {
	o.mu.Lock()
	o.byName["shop/"+name] = v
	o.mu.Unlock()
	o.changes <- types.NamespacedName{Namespace: "shop", Name: name}
}

func (o *objects[T]) owners() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.held)
}

type noTokens struct{}

func (noTokens) CreateToken(context.Context, string, string,
	*authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return nil, errors.New("no tokens in this test")
}

// recorded are Events.
type recorded struct {
	mu   sync.Mutex
	list []string
}

func (r *recorded) Record(e topic.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e.Reason+" "+e.Name+": "+e.Message)
}

// all are the Events recorded so far.
func (r *recorded) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// health is the last health that the daemon reported.
type health struct {
	mu   sync.Mutex
	last topic.HealthState
}

func (h *health) Set(state topic.HealthState, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = state
}

func (h *health) get() topic.HealthState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// world is a node with the daemon, in a synctest bubble: between two steps everything comes to rest.
type world struct {
	registry   *prometheus.Registry // of the last start
	t          *testing.T
	root       string
	bus        *bustest.Bus
	podsync    *bus.Conn
	pods       *bus.Writer[topic.Pod]
	sources    *bus.Writer[topic.Sources]
	configMaps *objects[corev1.ConfigMap]
	claims     claims
	events     *recorded
	log        bytes.Buffer // warnings and errors; read at rest
	health     health
	labels     *selinux.Book
	kinds      plugin.List // added before the real ones
	clock      func()      // called whenever the daemon reads the time; nil for nothing
	service    *Service    // of the last start
	stop       func()
}

// inWorld runs a test in a bubble; the directory is made outside of it.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() { _ = mounts.UnmountBelow(root) })
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, root: root, bus: bustest.New(), configMaps: newObjects[corev1.ConfigMap](), events: &recorded{}}
		w.bus.Restrict(Contract, bus.Contract{
			Daemon: "podsync", Writes: []bus.Topic{
				topic.PodUpdate, topic.PodSources, topic.PLEGEvent,
				topic.NodeRuntime, topic.NodeObject,
			},
			Reads: []bus.Topic{topic.VolumeState}, Calls: []bus.Topic{topic.VolumeSubPath},
			Serves: []bus.Topic{topic.PodEvict},
		})
		w.podsync = w.bus.Conn("podsync")
		w.pods, w.sources = topic.PodUpdate.Writer(w.podsync), topic.PodSources.Writer(w.podsync)
		f(w)
		if w.stop != nil {
			w.stop()
		}
		w.podsync.Close()
	})
}

// start starts the daemon.
func (w *world) start() {
	w.registry = prometheus.NewRegistry()
	m, err := newMetrics(w.registry)
	if err != nil {
		w.t.Fatal(err)
	}
	w.startWith(m)
}

// again starts another Service in the same process.
func (w *world) again() {
	m := w.service.ports.Metrics
	w.stop()
	w.startWith(m)
}

func (w *world) startWith(m metrics) {
	conn := w.bus.Conn("volume")
	s := New(w.root, conn, Ports{
		ConfigMaps: w.configMaps, Secrets: newObjects[corev1.Secret](), Tokens: noTokens{}, Claims: &w.claims,
		State: topic.VolumeState.Writer(conn), Events: w.events, Health: &w.health, Metrics: m,
		Labels: w.labels,
	}, slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	s.kinds = append(slices.Clone(w.kinds), s.kinds...)
	w.service = s
	if w.clock != nil {
		s.now = func() time.Time {
			w.clock()
			return time.Now()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run returned %v", err)
		}
		conn.Close()
		w.stop = nil
	}
	w.rest()
}

func (w *world) rest() { synctest.Wait() }

// podSpec is a pod with the volumes, which its container mounts.
func podSpec(uid string, volumes ...corev1.Volume) *corev1.Pod {
	app := corev1.Container{Name: "app"}
	for _, v := range volumes {
		app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "pod-" + uid, UID: types.UID(uid),
			Labels: map[string]string{"v": "1"},
		},
		Spec: corev1.PodSpec{Volumes: volumes, Containers: []corev1.Container{app}},
	}
}

func (w *world) update(p *corev1.Pod, stage topic.Lifecycle) {
	w.t.Helper()
	if err := w.pods.Set(string(p.UID), topic.Pod{Pod: p, Source: topic.SourceAPI, Lifecycle: stage}); err != nil {
		w.t.Fatal(err)
	}
	w.rest()
}

func (w *world) ready(uids ...string) {
	w.t.Helper()
	if err := w.sources.Set("", topic.Sources{Ready: true, Pods: uids}); err != nil {
		w.t.Fatal(err)
	}
	w.rest()
}

// state is the published state of a pod in short: "mounted: a=mounted b=failed(why)", or "none".
func (w *world) state(uid string) string {
	w.t.Helper()
	all, err := topic.VolumeState.Read(context.Background(), w.podsync)
	if err != nil {
		w.t.Fatal(err)
	}
	s, ok := all[uid]
	if !ok {
		return "none"
	}
	var list []string
	for name, v := range s.Volumes {
		text := name + "=" + string(v.Phase)
		if v.Message != "" {
			text += "(" + v.Message + ")"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return strings.TrimSpace(fmt.Sprintf("%s: %s", s.Phase, strings.Join(list, " ")))
}

func (w *world) expect(uid, want string) {
	w.t.Helper()
	if got := w.state(uid); got != want {
		w.t.Errorf("state of %s:\n got %s\nwant %s", uid, got, want)
	}
}

// dir is where a volume is.
func (w *world) dir(uid, kind, name string) string {
	return filepath.Join(w.root, "pods", uid, "volumes", "kubernetes.io~"+kind, name)
}

func (w *world) file(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "none"
	}
	return string(data)
}

// empty reports whether the pod has left nothing.
func (w *world) empty(uid string) bool {
	entries, _ := os.ReadDir(filepath.Join(w.root, "pods", uid))
	return len(entries) == 0
}

func emptyDir(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{
		Name:         name,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}},
	}
}

func configMap(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name},
	}}}
}

func labels(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{
			Path:     "labels",
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"},
		}},
	}}}
}

// blocking is a plugin whose Mount comes back when it is let go.
type blocking struct{ letGo chan struct{} }

func (b blocking) Mount(context.Context, plugin.Request) (plugin.Result, error) {
	<-b.letGo
	return plugin.Result{HostPath: "/nfs"}, nil
}

func (blocking) Unmount(context.Context, string) error { return nil }

// advance lets time pass.
func (w *world) advance(d time.Duration) {
	<-time.After(d) // the bubble's clock
	w.rest()
}
