package status

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is the service between a bus in memory and an API server in memory.
type rig struct {
	t      *testing.T
	server *server
	bus    *bustest.Bus

	pods    podWriter
	patches *bus.Writer[topic.PodStatus]
	probes  *bus.Writer[topic.Probe]
	mirrors *bus.Writer[topic.MirrorPod]
	sources *bus.Writer[topic.Sources]
	node    *bus.Writer[corev1.Node]

	// log and health are the service's; to be read after synctest.Wait.
	log    bytes.Buffer
	health topic.HealthState
}

func (r *rig) Set(state topic.HealthState, _ string) { r.health = state }

// podWriter states pods as podsync does: the object of an API pod apart.
type podWriter struct {
	updates *bus.Writer[topic.Pod]
	objects *bus.Writer[topic.APIPod]
}

func (w podWriter) Set(uid string, p topic.Pod) error {
	var err error
	pod := *p.Pod
	if !p.Static() {
		err = w.objects.Set(uid, topic.APIPod{
			Ref: topic.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: uid}, ResourceVersion: pod.ResourceVersion,
			Status: pod.Status,
		})
	}
	pod.Status = corev1.PodStatus{}
	p.Pod = &pod
	return errors.Join(err, w.updates.Set(uid, p))
}

func (w podWriter) Delete(uid string) error {
	return errors.Join(w.objects.Delete(uid), w.updates.Delete(uid))
}

type nothing struct{}

func (nothing) Record(topic.Event) {}

// run runs a test in a bubble, with the service started by the test's own call of start.
func run(t *testing.T, server *server, body func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		podsync, probe, lease := b.Conn("podsync"), b.Conn("probe"), b.Conn("lease")
		defer podsync.Close()
		defer probe.Close()
		defer lease.Close()
		body(&rig{
			t: t, server: server, bus: b,
			pods:    podWriter{topic.PodUpdate.Writer(podsync), topic.PodObject.Writer(podsync)},
			patches: topic.StatusPatch.Writer(podsync),
			mirrors: topic.PodMirror.Writer(podsync), sources: topic.PodSources.Writer(podsync),
			probes: topic.ProbeResult.Writer(probe), node: topic.NodeObject.Writer(lease),
		})
	})
}

// start starts the service; the returned function stops it.
func (r *rig) start() (stop func()) {
	if r.server == nil {
		return r.startWith(nil)
	}
	return r.startWith(r.server)
}

func (r *rig) startWith(api pods) (stop func()) {
	conn := r.bus.Conn("status")
	env := daemon.Env{
		Config: &config.Config{NodeName: "n1"}, Bus: conn, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Health: r, Events: nothing{}, Metrics: prometheus.NewRegistry(),
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error)
	go func() { done <- New(env, api).Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
		conn.Close()
	}
}

func (r *rig) must(errs ...error) {
	r.t.Helper()
	for _, err := range errs {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (r *rig) wantCalls(want ...string) {
	r.t.Helper()
	if got := r.server.calls(); !slices.Equal(got, want) {
		r.t.Errorf("calls %q, want %q", got, want)
	}
}
