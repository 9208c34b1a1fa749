package executor

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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/dns"
	"kubelot.dev/services/podsync/internal/runtime/hooks"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/metrics"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// errTaken is the runtime's answer to a call whose like is under way.
var errTaken = errors.New("name is reserved")

// busyRuntime works on the call of an earlier process until then, and answers the same call with errTaken; after it the
// pod is as told.
type busyRuntime struct {
	Containers
	Sandboxes
	until time.Time
	then  topic.PodObservation

	mu    sync.Mutex
	calls []string
}

func (r *busyRuntime) call(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, name)
	if time.Now().Before(r.until) {
		return errTaken
	}
	return nil
}

func (r *busyRuntime) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	return "s1", r.call("run")
}

func (r *busyRuntime) StopPodSandbox(context.Context, string) error { return r.call("stop") }

func (r *busyRuntime) CreateContainer(context.Context, string, *runtimeapi.ContainerConfig,
	*runtimeapi.PodSandboxConfig,
) (string, error) {
	return "own", r.call("create")
}

func (r *busyRuntime) StartContainer(_ context.Context, id string) error {
	return r.call("start " + id)
}

func (r *busyRuntime) ExecSync(context.Context, string, []string, time.Duration) ([]byte, []byte, int32, error) {
	return nil, nil, 0, r.call("hook")
}

func (r *busyRuntime) observe(context.Context, string, *topic.PodObservation) (topic.PodObservation, error) {
	if time.Now().Before(r.until) {
		return topic.PodObservation{}, errors.New("not now")
	}
	return r.then, nil
}

// plainNode is a node with nothing special.
type plainNode struct{ dir string }

func (n plainNode) CRI() *criconfig.Node {
	return &criconfig.Node{
		RootDir: n.dir, PodLogsDir: filepath.Join(n.dir, "pods-logs"),
		ContainerLogsDir: filepath.Join(n.dir, "links"),
	}
}

func (plainNode) DNS() (dns.Node, error) { return dns.Node{Resolv: &dns.Resolv{}}, nil }

func (plainNode) SharedCPUs() string                                      { return "" }
func (plainNode) HostIPs() []string                                       { return []string{"192.0.2.1"} }
func (plainNode) Allocatable() corev1.ResourceList                        { return nil }
func (plainNode) Handler(_ context.Context, class string) (string, error) { return class, nil }
func (plainNode) RecursiveReadOnly(*corev1.Pod) bool                      { return false }
func (plainNode) UserNamespaces(handler string) (bool, error)             { return handler == "kata", nil }

type noCgroups struct{}

func (noCgroups) Create(*corev1.Pod) (string, error)       { return "", nil }
func (noCgroups) Parent(*corev1.Pod) string                { return "" }
func (noCgroups) Destroy(context.Context, types.UID) error { return nil }
func (noCgroups) Loosen(*corev1.Pod) error                 { return nil }
func (noCgroups) Update(*corev1.Pod) error                 { return nil }
func (noCgroups) MemoryLimit(*corev1.Pod) int64            { return 0 }
func (noCgroups) MemoryUsage(*corev1.Pod) (uint64, error)  { return 0, nil }

// recorded keeps the Events' types and reasons.
type recorded struct {
	mu   sync.Mutex
	list []string
}

func (e *recorded) Record(event topic.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event.Type+" "+event.Reason)
}

func sandboxed(c ...topic.Container) topic.PodObservation {
	return topic.PodObservation{
		Sandboxes:  []topic.Sandbox{{ID: "s1", Ready: true, IPs: []string{"10.0.0.2"}}},
		Containers: c,
	}
}

func TestWhatAnEarlierProcessBegan(t *testing.T) {
	began := func(state topic.ContainerState) topic.Container {
		return topic.Container{ID: "early", Name: "app", SandboxID: "s1", State: state, LogPath: "/logs/app/0.log"}
	}
	create := plan.Action{Kind: plan.StartContainer, Container: "app", SandboxID: "s1"}
	start := plan.Action{Kind: plan.StartContainer, Container: "app", SandboxID: "s1", ID: "early"}
	sandbox := plan.Action{Kind: plan.CreateSandbox}
	for name, c := range map[string]struct {
		action plan.Action
		before topic.PodObservation // what was read when the action was planned
		then   topic.PodObservation
		until  time.Duration // when the earlier call ends
		fresh  bool          // no earlier process was killed
		stop   time.Duration // when the pod must stop; zero for never
		calls  string        // without repetitions
		events string
		took   time.Duration // at most
		fails  bool
	}{
		"a sandbox is adopted": {
			action: sandbox, then: sandboxed(), until: 500 * time.Millisecond, calls: "run", took: time.Second,
		},
		"a sandbox whose creation failed is created": {
			action: sandbox, until: 500 * time.Millisecond, calls: "run", took: time.Second,
		},
		"a created container is started": {
			action: create, before: sandboxed(), then: sandboxed(began(topic.ContainerCreated)), until: 500 * time.Millisecond,
			calls: "create, start early, hook", events: "Normal Created, Normal Started", took: time.Second,
		},
		"a container whose creation failed is created": {
			action: create, before: sandboxed(), then: sandboxed(), until: 500 * time.Millisecond,
			calls: "create, start own, hook", events: "Normal Created, Normal Started", took: time.Second,
		},
		"a started container is adopted, and its hook runs": {
			action: start, before: sandboxed(began(topic.ContainerCreated)), then: sandboxed(began(topic.ContainerRunning)),
			until: 500 * time.Millisecond,
			calls: "start early, hook", events: "Normal Started", took: time.Second,
		},
		"a container that has ended by then is left to the plan": {
			action: start, before: sandboxed(began(topic.ContainerCreated)), then: sandboxed(began(topic.ContainerExited)),
			until: 500 * time.Millisecond,
			calls: "start early", took: time.Second,
		},
		"a sandbox that is lost by then is left to the plan": {
			action: create, before: sandboxed(), until: 500 * time.Millisecond, calls: "create", took: time.Second,
		},
		"a lasting failure is reported once": {
			action: create, before: sandboxed(), until: time.Hour, calls: "create", events: "Warning Failed",
			took: 31 * time.Second, fails: true,
		},
		"a pod that is to stop isn't waited for": {
			action: create, before: sandboxed(), until: time.Hour, stop: time.Second, calls: "create",
			took: time.Second, fails: true,
		},
		"without an earlier process a failure is reported at once": {
			action: sandbox, until: time.Hour, fresh: true, calls: "run", events: "Warning FailedCreatePodSandBox", fails: true,
		},
		"and so is a container's": {
			action: start, before: sandboxed(began(topic.ContainerCreated)), until: time.Hour, fresh: true, calls: "start early",
			events: "Warning Failed", fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := &busyRuntime{until: began.Add(c.until), then: c.then}
				a, told := newExecutor(t, r, func(d *Deps) {
					d.Runtime.Settling = func() bool { return !c.fresh && time.Since(began) < 30*time.Second }
				})
				ctx := t.Context()
				if c.stop > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.stop)
					defer cancel()
				}
				out := a.Do(ctx, worker.Snapshot{Pod: hooked(), Obs: c.before}, c.action)
				if (out.Err != nil) != c.fails {
					t.Errorf("error %v", out.Err)
				}
				if took := time.Since(began); took > c.took {
					t.Errorf("took %v, want at most %v", took, c.took)
				}
				if got := strings.Join(slices.Compact(r.calls), ", "); got != c.calls {
					t.Errorf("calls %s\nwant  %s", got, c.calls)
				}
				if got := strings.Join(told.list, ", "); got != c.events {
					t.Errorf("events %s\nwant   %s", got, c.events)
				}
				if strings.Contains(c.calls, "start early") && !c.fails {
					link := filepath.Join(a.containers.builder.node.CRI().ContainerLogsDir, "web_default_app-early.log")
					if _, err := os.Lstat(link); err != nil {
						t.Errorf("the log collectors' link: %v", err)
					}
				}
			})
		})
	}
}

// hooked is a pod whose container has a postStart hook.
func hooked() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault, Containers: []corev1.Container{{
			Name: "app", Image: "a",
			Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
				Exec: &corev1.ExecAction{Command: []string{"true"}},
			}},
		}}},
	}
}

// newExecutor makes an Executor on the runtime; changes are made to what it works with before.
func newExecutor(t *testing.T, r *busyRuntime, changes ...func(*Deps)) (*Executor, *recorded) {
	t.Helper()
	dir := t.TempDir()
	userNS, err := NewUserNamespaces(dir, 65536, 10)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	conn := bustest.New().Conn("podsync")
	t.Cleanup(conn.Close)
	told := &recorded{}
	counted, err := metrics.New(prometheus.NewRegistry(), 0)
	if err != nil {
		t.Fatal(err)
	}
	deps := Deps{
		Runtime: Runtime{Sandboxes: r, Containers: r, Observe: r.observe},
		Node:    plainNode{dir}, Pods: Pods{Cgroups: noCgroups{}, UserNS: userNS}, Hooks: hooks.New(r),
		Turns:   Turns{Starts: slots.New(1), Stops: slots.New(1)},
		Reports: Reports{Events: events.New(conn, told, 0, "", log), Metrics: counted, Log: log},
	}
	for _, change := range changes {
		change(&deps)
	}
	return New(deps), told
}
