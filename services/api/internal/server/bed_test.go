package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/critest"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/api"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(crowdChild); address != "" {
		if err := serveCrowd(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m,
		// The API machinery's logs and metrics keep these for the life of a process.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// bed is the daemon on a bus and a runtime of its own, without listeners: tests call its handlers.
type bed struct {
	t       *testing.T
	dir     string
	bus     *bustest.Bus
	fake    *critest.Runtime
	service *Service
	// reported is the daemon's own health.
	reported reported

	pods     *bus.Writer[topic.Pod]
	statuses *bus.Writer[topic.PodStatus]
	seen     *bus.Writer[topic.PodObservation]
	health   map[string]*bus.Writer[topic.DaemonHealth]
	// resources are the resource daemon's word.
	resources *bus.Writer[topic.NodeResources]
}

// reported is the last health that the daemon told.
type reported struct {
	last atomic.Pointer[topic.HealthState]
}

func (r *reported) Set(state topic.HealthState, _ string) { r.last.Store(&state) }

func (r *reported) is(state topic.HealthState) bool {
	last := r.last.Load()
	return last != nil && *last == state
}

// newBed runs the daemon with these lines of a KubeletConfiguration.
func newBed(t *testing.T, lines string) *bed { return newBedOn(t, bustest.New(), lines) }

func newBedOn(t *testing.T, on *bustest.Bus, lines string) *bed {
	t.Helper()
	b := &bed{
		t: t, dir: t.TempDir(), bus: on, fake: critest.Start(t),
		health: map[string]*bus.Writer[topic.DaemonHealth]{},
	}
	b.bus.Restrict(api.Contract, bus.Contract{Daemon: "podsync", Writes: []bus.Topic{
		topic.PodUpdate,
		topic.StatusPatch, topic.Health,
	}},
		bus.Contract{Daemon: "pleg", Writes: []bus.Topic{topic.PLEGEvent, topic.Health}},
		bus.Contract{Daemon: "resource", Writes: []bus.Topic{topic.Health, topic.ResourcesOfNode}})
	conn := func(name string) *bus.Conn {
		c := b.bus.Conn(name)
		t.Cleanup(c.Close)
		return c
	}
	podsync, pleg := conn("podsync"), conn("pleg")
	b.pods, b.statuses, b.seen = topic.PodUpdate.Writer(podsync), topic.StatusPatch.Writer(podsync),
		topic.PLEGEvent.Writer(pleg)
	b.health["podsync"], b.health["pleg"] = topic.Health.Writer(podsync), topic.Health.Writer(pleg)
	resource := conn("resource")
	b.health["resource"], b.resources = topic.Health.Writer(resource), topic.ResourcesOfNode.Writer(resource)
	env := daemon.Env{
		Config: b.config(lines), Bus: conn("api"), Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewPedanticRegistry(),
		Pages:   http.NewServeMux(), Health: &b.reported,
	}
	var err error
	if b.service, err = New(env, b.fake.Client(t, 0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- b.service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-end; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return b
}

func (b *bed) config(lines string) *config.Config {
	b.t.Helper()
	path := filepath.Join(b.dir, "kubelet.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"healthzPort: 0\nenableServer: false\n" + lines
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	var flags config.Flags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Register(set)
	if err := set.Parse([]string{
		"--config=" + path, "--hostname-override=n1", "--run-dir=" + b.dir,
		"--root-dir=" + b.dir, "--cert-dir=" + filepath.Join(b.dir, "pki"),
	}); err != nil {
		b.t.Fatal(err)
	}
	c, err := flags.Load()
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

const podName = "web"

// pod publishes a pod with one container that has this log; it returns once the daemon knows.
func (b *bed) pod(logPath string, state topic.ContainerState) {
	b.t.Helper()
	ref := topic.Ref{Namespace: "ns", Name: podName, UID: "u1"}
	status := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://c1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	for _, err := range []error{
		b.pods.Set("u1", topic.Pod{Source: topic.SourceAPI, Lifecycle: topic.Syncing, Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: podName, UID: "u1"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}},
		}}),
		b.statuses.Set("u1", topic.PodStatus{Ref: ref, Source: topic.SourceAPI, Status: status}),
		b.seen.Set("u1", topic.PodObservation{
			Ref: ref, At: time.Now(), Sandboxes: []topic.Sandbox{{ID: "s1", Ready: true}},
			Containers: []topic.Container{{ID: "c1", SandboxID: "s1", Name: "app", Image: "i", State: state, LogPath: logPath}},
		}),
	} {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.until(func() bool {
		p, err := b.service.pod(b.t.Context(), "ns", podName)
		c, ok := p.Container("c1")
		return err == nil && ok && c.State == state && c.LogPath == logPath && len(p.Status.ContainerStatuses) == 1
	})
}

func (b *bed) until(ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("the daemon doesn't take what is published")
		}
	}
}

// call sends a request to the routes, past the guard.
func (b *bed) call(method, path string) (code int, body string) {
	b.t.Helper()
	answer := httptest.NewRecorder()
	b.service.routes().ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	data, err := io.ReadAll(answer.Result().Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.Code, string(data)
}

func (b *bed) wants(method, path string, code int, text string) {
	b.t.Helper()
	if gotCode, body := b.call(method, path); gotCode != code || !strings.Contains(body, text) {
		b.t.Errorf("%s %s: %d %q; want %d and %q", method, path, gotCode, body, code, text)
	}
}
