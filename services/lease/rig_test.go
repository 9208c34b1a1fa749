package lease

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is the service between a bus and an API server in memory.
type rig struct {
	said   said // the daemon's own health
	t      *testing.T
	server *server
	bus    *bustest.Bus
	events events
	// registry is that of the last start.
	registry *prometheus.Registry

	machine *bus.Writer[topic.Machine]
	runtime *bus.Writer[topic.Runtime]
	drivers *bus.Writer[topic.CSINodeInfo]
	volumes *bus.Writer[topic.VolumesInUse]
	plugins *bus.Writer[topic.Plugin]
	health  map[string]*bus.Writer[topic.DaemonHealth]
}

// events keeps the reasons of Events.
type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Record(event topic.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons = append(e.reasons, event.Reason)
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	reasons := e.reasons
	e.reasons = nil
	return reasons
}

func run(t *testing.T, server *server, body func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, server: server, health: map[string]*bus.Writer[topic.DaemonHealth]{}}
		r.onAnotherBus()
		body(r)
	})
}

// onAnotherBus connects the daemons to a bus on which nothing has been said.
func (r *rig) onAnotherBus() {
	r.bus = bustest.New()
	for _, name := range append([]string{"stats"}, vital...) {
		conn := r.bus.Conn(name)
		r.t.Cleanup(conn.Close)
		r.health[name] = topic.Health.Writer(conn)
		switch name {
		case "stats":
			r.machine = topic.NodeMachine.Writer(conn)
		case "volume":
			r.drivers, r.volumes = topic.CSIDriver.Writer(conn), topic.CSIVolumes.Writer(conn)
			r.plugins = topic.PluginRegistered.Writer(conn)
		case "pleg":
			r.runtime = topic.NodeRuntime.Writer(conn)
		}
	}
}

// start starts the service, standalone without a server; the returned function stops it.
func (r *rig) start() (stop func()) {
	if r.server == nil {
		return r.startWith(nil)
	}
	return r.startWith(r.server)
}

// startWith starts the service with that API server.
func (r *rig) startWith(api nodes) (stop func()) {
	conn := r.bus.Conn("lease")
	r.registry = prometheus.NewRegistry()
	env := daemon.Env{
		Config: testConfig(), Bus: conn, Log: slog.New(slog.DiscardHandler), Health: &r.said,
		Events: &r.events, Metrics: r.registry,
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error)
	go func() { done <- New(env, api, testHost("10.0.0.5")).Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
		conn.Close()
	}
}

// beats lets the vital daemons say that they are well.
func (r *rig) beats() {
	for _, name := range vital {
		r.must(r.health[name].Set(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now()}))
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

// published is node.object as it is retained.
func (r *rig) published() corev1.Node {
	r.t.Helper()
	conn := r.bus.Conn("cli")
	defer conn.Close()
	all, err := topic.NodeObject.Read(r.t.Context(), conn)
	r.must(err)
	return all[""]
}

func readyOf(n *corev1.Node) corev1.ConditionStatus {
	if c := condition(n.Status.Conditions, corev1.NodeReady); c != nil {
		return c.Status
	}
	return "absent"
}
