package shutdown

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is the service on a bus in memory, in a bubble. The test is logind, podsync, status, lease and the command line.
type rig struct {
	t       *testing.T
	bus     *bustest.Bus
	others  *bus.Conn
	pods    *bus.Writer[topic.Pod]
	health  *bus.Writer[topic.DaemonHealth]
	node    *bus.Writer[corev1.Node]
	dir     string
	groups  []topic.ShutdownGroup
	noLogin bool

	mu      sync.Mutex
	states  map[string]*topic.Pod
	asked   []string
	events  []string
	busy    error // podsync's answer
	pending topic.UnwrittenReply
	want    bool
	tell    func(bool)
	log     bytes.Buffer
	metrics *prometheus.Registry
}

// Record, Run, Want and Limit are those of what the service uses.
func (r *rig) Record(e topic.Event) { r.events = append(r.events, e.Kind+" "+e.Reason+": "+e.Message) }

func (r *rig) Run(ctx context.Context, announced func(bool), _ func(error)) {
	r.mu.Lock()
	r.tell = announced
	r.mu.Unlock()
	<-ctx.Done()
}

func (r *rig) Want(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = held
}

func (r *rig) Limit() time.Duration { return 35 * time.Second }

func (r *rig) held() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want
}

// inBubble runs a test with two groups, of 20 and of 10 seconds.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, bus: bustest.New(), dir: dir, states: map[string]*topic.Pod{},
			groups: topic.ShutdownGroups(30*time.Second, 10*time.Second),
		}
		r.others = r.bus.Conn("others")
		t.Cleanup(r.others.Close)
		r.pods, r.health = topic.PodUpdate.Writer(r.others), topic.Health.Writer(r.others)
		r.node = topic.NodeObject.Writer(r.others)
		ctx, cancel := context.WithCancel(t.Context())
		var served sync.WaitGroup
		served.Go(func() {
			_ = topic.PodEvict.Serve(ctx, r.others, r.evict) // it ends with the test
		})
		served.Go(func() {
			_ = topic.StatusUnwritten.Serve(ctx, r.others, r.unwritten) // it ends with the test
		})
		defer served.Wait()
		defer cancel()
		r.ready(true)
		test(r)
	})
}

// evict is podsync's.
func (r *rig) evict(_ context.Context, e topic.Eviction) (topic.EvictionReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy != nil {
		return topic.EvictionReply{}, r.busy
	}
	if e.Reason != "Terminated" || e.Message != podMessage || e.Disruption != "TerminationByKubelet" {
		r.t.Errorf("eviction %+v", e)
	}
	r.asked = append(r.asked, fmt.Sprintf("%s %d", e.Name, *e.GracePeriodSeconds))
	return topic.EvictionReply{}, nil
}

func (r *rig) unwritten(_ context.Context, req topic.UnwrittenRequest) (topic.UnwrittenReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reply := r.pending
	reply.UIDs = slices.DeleteFunc(slices.Clone(reply.UIDs), func(uid string) bool {
		return !slices.Contains(req.UIDs, uid)
	})
	return reply, nil
}

// start runs the service; stop ends it as a crash does: nobody is told.
func (r *rig) start() (stop func()) {
	r.t.Helper()
	s, conn := r.service()
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, func(error) {})
	}()
	synctest.Wait()
	stop = sync.OnceFunc(func() { cancel(); <-done; conn.Close() })
	r.t.Cleanup(stop)
	return stop
}

// service is one that doesn't run yet.
func (r *rig) service() (*Service, *bus.Conn) {
	r.t.Helper()
	conn := r.bus.Conn("gc")
	r.metrics = prometheus.NewRegistry()
	env := daemon.Env{
		Config: &config.Config{NodeName: "n1", RootDir: r.dir, Kubeconfig: "k"}, Bus: conn, Events: r,
		Log: slog.New(slog.NewTextHandler(&r.log, nil)), Metrics: r.metrics,
	}
	var lock Lock
	if !r.noLogin {
		lock = r
	}
	s, err := New(env, r.groups, lock)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, conn
}

func (r *rig) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// announce is logind's word.
func (r *rig) announce(shuttingDown bool) {
	r.mu.Lock()
	tell := r.tell
	r.mu.Unlock()
	tell(shuttingDown)
	synctest.Wait()
}

// pod states a pod.
func (r *rig) pod(name string, priority int32, grace int64) {
	p := &topic.Pod{
		Source: topic.SourceAPI, Lifecycle: topic.Syncing,
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace},
		},
	}
	r.states[name] = p
	r.must(r.pods.Set(name, *p))
}

// is states how far the pod's end is.
func (r *rig) is(name string, l topic.Lifecycle, released bool) {
	p := r.states[name]
	p.Lifecycle, p.Released = l, released
	r.must(r.pods.Set(name, *p))
}

func (r *rig) ends(names ...string) {
	for _, name := range names {
		r.is(name, topic.Terminating, false)
	}
}

func (r *rig) over(names ...string) {
	for _, name := range names {
		r.is(name, topic.Terminated, true)
	}
}

func (r *rig) ready(is bool) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	r.must(r.node.Set("", corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}))
}

func (r *rig) lacks(reply topic.UnwrittenReply) {
	r.mu.Lock()
	r.pending = reply
	r.mu.Unlock()
}

// wantAsked checks whom podsync was asked to end since the last time, with which grace.
func (r *rig) wantAsked(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.asked)
	if !slices.Equal(r.asked, want) {
		r.t.Errorf("asked are %q, want %q", r.asked, want)
	}
	r.asked = nil
}

// state is what is on the bus.
func (r *rig) state() topic.Shutdown {
	r.t.Helper()
	values, err := topic.NodeShutdown.Read(r.t.Context(), r.others)
	if err != nil {
		r.t.Fatal(err)
	}
	return values[""]
}

func (r *rig) ask(action topic.ShutdownAction, groups ...topic.ShutdownGroup) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	_, err := topic.ShutdownRequested.Do(ctx, r.others, topic.ShutdownRequest{Action: action, Groups: groups})
	synctest.Wait()
	return err
}

func (r *rig) metric(name string) float64 {
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}
