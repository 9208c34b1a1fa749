package dra

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/dratest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is what the API server has.
type api struct {
	mu     sync.Mutex
	claims map[string]*resourceapi.ResourceClaim
	err    error
	// hang has it not answer until the request ends.
	hang      bool
	gets      int
	deletions []string
	deleteErr error
}

func (a *api) GetResourceClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gets++
	if a.hang {
		a.mu.Unlock()
		<-ctx.Done()
		a.mu.Lock()
		return nil, ctx.Err()
	}
	c := a.claims[name]
	if a.err != nil {
		return nil, a.err
	}
	if c == nil || namespace != "ns" {
		return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
	}
	return c, nil
}

func (a *api) DeleteResourceSlices(_ context.Context, selector string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deletions = append(a.deletions, selector)
	return a.deleteErr
}

// set changes what the API server has.
func (a *api) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *api) deleted() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.deletions
	a.deletions = nil
	return all
}

// claim has the claim allocated by the drivers, and reserved for the pods.
func (a *api) claim(name, drivers, pods string) {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for _, d := range strings.Fields(drivers) {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "req", Driver: d, Pool: "pool", Device: "dev-" + name})
	}
	for _, p := range strings.Fields(pods) {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	a.set(func() { a.claims[name] = c })
}

type recorder struct {
	mu   sync.Mutex
	list []string
}

func (r *recorder) Record(e topic.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e.Name+" "+e.Type+" "+e.Reason+" "+e.Message)
}

// bed is a manager with drivers and an API server, in a bubble of testing/synctest.
type bed struct {
	t       *testing.T
	root    string
	net     dratest.Network
	api     api
	events  recorder
	plugins map[string]topic.Plugin
	drivers []*dratest.Driver
	metrics *prometheus.Registry

	m      *Manager
	stop   func()
	status map[types.UID]Status
}

// run runs a test in a bubble with a manager.
func run(t *testing.T, test func(b *bed)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, root: root, plugins: map[string]topic.Plugin{}}
		b.api.claims = map[string]*resourceapi.ResourceClaim{}
		b.start()
		defer func() {
			b.stop()
			for _, d := range b.drivers {
				d.Stop()
			}
		}()
		test(b)
	})
}

// start runs a manager for the pods that an earlier one has published as allocated.
func (b *bed) start(allocated ...types.UID) {
	b.t.Helper()
	cfg := Config{RootDir: b.root, Node: "n", Allocated: map[types.UID]bool{}}
	for _, uid := range allocated {
		cfg.Allocated[uid] = true
	}
	b.metrics = prometheus.NewRegistry()
	m, err := New(cfg, Ports{
		Claims: &b.api, Slices: &b.api, Events: &b.events, Dial: b.net.Dial, Metrics: b.metrics,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	b.m, b.status = m, map[types.UID]Status{}
	b.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
	m.Registered(b.plugins)
	b.wait(0)
}

// restart is another process on the same disk.
func (b *bed) restart(allocated ...types.UID) {
	b.t.Helper()
	b.stop()
	b.start(allocated...)
}

// wait lets so much time pass, and what is to be done by then be done.
func (b *bed) wait(d time.Duration) {
	b.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	for uid, s := range b.m.Take() {
		b.status[uid] = s
	}
}

// serve serves a driver at an endpoint of its name.
func (b *bed) serve(endpoint string) *dratest.Driver {
	b.t.Helper()
	l := bufconn.Listen(1 << 16)
	b.net.Listen(endpoint, l)
	d := dratest.Serve(l, dratest.Options{Health: true})
	b.drivers = append(b.drivers, d)
	return d
}

// crash ends the driver at the endpoint.
func (b *bed) crash(endpoint string, d *dratest.Driver) {
	b.net.Listen(endpoint, nil)
	d.Stop()
}

// register registers drivers at endpoints of their names, instead of those that were registered.
func (b *bed) register(names ...string) {
	b.t.Helper()
	b.plugins = map[string]topic.Plugin{}
	for _, name := range names {
		b.plugins["DRAPlugin."+name] = topic.Plugin{
			Type: topic.DRAPlugin, Name: name,
			PluginEndpoint: topic.PluginEndpoint{Endpoint: name, Instance: "1", Versions: []string{"v1.DRAPlugin"}},
		}
	}
	b.m.Registered(b.plugins)
	b.wait(0)
}

// driver serves and registers one driver.
func (b *bed) driver(name string) *dratest.Driver {
	b.t.Helper()
	d := b.serve(name)
	b.register(name)
	b.wait(2 * time.Second)
	return d
}

// podWith is a pod whose container app has all the claims.
func podWith(name string, all ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	app := corev1.Container{Name: "app"}
	for _, claim := range all {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
			corev1.PodResourceClaim{Name: "my-" + claim, ResourceClaimName: &claim})
		app.Resources.Claims = append(app.Resources.Claims, corev1.ResourceClaim{Name: "my-" + claim})
	}
	pod.Spec.Containers = []corev1.Container{app}
	return pod
}

func (b *bed) want(pods ...*corev1.Pod) {
	b.t.Helper()
	for _, p := range pods {
		b.m.Want(p, Admitted)
	}
	b.wait(0)
}

func (b *bed) ended(pods ...*corev1.Pod) {
	b.t.Helper()
	for _, p := range pods {
		b.m.Ended(p)
	}
	b.wait(0)
}

// is checks a pod's status: its phase, the CDI devices of its container and what is in its message.
func (b *bed) is(pod string, phase topic.AllocationPhase, cdi, message string) {
	b.t.Helper()
	s := b.status[types.UID(pod)]
	if got := strings.Join(s.Containers["app"].CDI, " "); s.Phase != phase || got != cdi ||
		!strings.Contains(s.Message, message) || (message == "" && s.Message != "") {
		b.t.Errorf("pod %s is %q with %q: %s; want %q with %q: %s", pod, s.Phase, got, s.Message, phase, cdi, message)
	}
}

func (b *bed) calls(d *dratest.Driver, want ...string) {
	b.t.Helper()
	if got := d.Calls(); !slices.Equal(got, want) {
		b.t.Errorf("the driver was called %q; want %q", got, want)
	}
}

// recorded checks the Events since the last time: each has its text in it.
func (b *bed) recorded(want ...string) {
	b.t.Helper()
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	got := b.events.list
	b.events.list = nil
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		b.t.Errorf("Events %q; want %q", got, want)
	}
}

// disk checks whether the file has each of the words, which begin with "-" if it must not have them.
func (b *bed) disk(words ...string) {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, "dra_manager_state"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Error(err)
	}
	for _, word := range words {
		not := strings.HasPrefix(word, "-")
		if word = strings.TrimPrefix(word, "-"); strings.Contains(string(data), word) == not {
			b.t.Errorf("the file has %s: %v\n%s", word, not, data)
		}
	}
}
