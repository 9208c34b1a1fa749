package resource

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/dra"
	"kubelot.dev/services/resource/internal/fault"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/metrics"
	"kubelot.dev/services/resource/internal/podresources"
	"kubelot.dev/services/resource/internal/podsapi"
)

const (
	// pluginsDir is the name of the directory of device plugins' sockets.
	pluginsDir = "device-plugins"
	// pluginsMode is its mode.
	pluginsMode = 0o750
	// readTimeout is how long the bus may take to answer at the start.
	readTimeout = 10 * time.Second
	// servePause is the pause before something is served again after it has failed.
	servePause = 5 * time.Second
)

// deviceDir is the directory of device plugins' sockets. Plugins look for it where it always is, whatever --root-dir
// says. An agent with a run directory of its own is a second one on the machine, and has plugins of its own.
func deviceDir(cfg *config.Config) string {
	if cfg.RunDir == config.RunDir {
		return filepath.Join(config.RootDir, pluginsDir)
	}
	return filepath.Join(cfg.RootDir, pluginsDir)
}

// run wires the daemon: its service, the servers of plugins and of the APIs, and the claims of devices, which need the
// API server.
func run(ctx context.Context, env daemon.Env) error {
	topology, err := machine.Read("/")
	if err != nil {
		return fmt.Errorf("read the machine's CPUs and memory: %w", err)
	}
	h, faults := newHoldings(env.Config, topology)
	if text, _ := fault.Text(faults); text != "" {
		env.Log.Error("the configuration of CPUs, memory and topology is wrong", "error", text)
	}
	env.Health = withFaults(env.Health, faults)
	if h.metrics, err = metrics.New(env.Metrics); err != nil {
		return err
	}
	h.metrics.Begin(h.policy, h.cpus.Policy() == cpus.PolicyStatic)
	dir := deviceDir(env.Config)
	files := filesOf(env.Config.RootDir, dir)
	before, err := readBefore(ctx, env)
	if err != nil {
		return err
	}
	found := h.recall(files, before, machine.Booted(), env.Log)
	s := New(env, h, newWriter(files, h, found).write)
	s.found, s.nap = found, nap{sleeper: env.Sleep, kept: keeps(h, faults)}
	ctx, stop := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop(errors.New("the resource daemon stops"))
	w := &wiring{service: s, env: env, working: &working}
	if err := w.servePlugins(ctx, dir); err != nil {
		return err
	}
	if err := w.serveAPIs(ctx); err != nil {
		return err
	}
	if !env.Config.Standalone() {
		client, err := w.startClaims(ctx)
		if err != nil {
			return err
		}
		// Before the wait above: what works with the client has ended by then.
		defer client.Close()
	}
	w.serveOffice(ctx)
	return s.Run(ctx)
}

// wiring connects the service with what runs beside it.
type wiring struct {
	service *Service
	env     daemon.Env
	working *sync.WaitGroup
	// office answers what people ask of claims.
	office dra.Office
}

// readBefore reads what an earlier run has said.
func readBefore(ctx context.Context, env daemon.Env) (before predecessor, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errors.New("the bus has not answered"))
	defer cancel()
	if before.pods, err = topic.PodAllocation.Read(ctx, env.Bus); err != nil {
		return before, err
	}
	nodes, err := topic.ResourcesOfNode.Read(ctx, env.Bus)
	before.node, before.said = nodes[""]
	return before, err
}

// servePlugins has device plugins register.
func (w *wiring) servePlugins(ctx context.Context, dir string) error {
	metrics, err := deviceplugin.NewMetrics(w.env.Metrics)
	if err != nil {
		return err
	}
	server := deviceplugin.New(dir, deviceplugin.Ports{
		Report: w.service.report, Registering: w.registering, Metrics: metrics, Log: w.env.Log,
		Door: w.env.Sleep.Door("device-plugins", deviceplugin.SocketOf(dir)),
	})
	w.service.plugins, w.service.announce = server, server
	w.working.Go(func() { w.keep(ctx, "device plugins can't register", server.Run) })
	return nil
}

// registering takes why device plugins can't register; nil where they can.
func (w *wiring) registering(ctx context.Context, err error) {
	s := w.service
	s.loop.Do(ctx, func() {
		s.problems.Set("device plugins can't register", err)
		s.publisher.unregistrable, s.changed = "", true
		if err != nil {
			s.publisher.unregistrable = err.Error()
		}
	})
}

// serveAPIs serves the PodResources API, and the Pods API where the configuration asks for it.
func (w *wiring) serveAPIs(ctx context.Context) error {
	k := &w.env.Config.Kubelet
	metrics, err := podresources.NewMetrics(w.env.Metrics)
	if err != nil {
		return err
	}
	shown := podresources.Ports{
		Source: source{w.service}, Metrics: metrics,
		Door:  w.env.Sleep.Door("pod-resources", podresources.SocketOf(w.env.Config.RootDir)),
		Ended: !config.Enabled(k, config.GateListActivePods),
	}
	api := podresources.New(w.env.Config.RootDir, shown, w.env.Log)
	w.working.Go(func() { w.keep(ctx, "the PodResources API can't be served", api.Run) })
	if !config.Enabled(k, config.GatePodsAPI) {
		return nil
	}
	// Its clients hear of all pods.
	w.service.nap.kept = true
	own, err := podsapi.NewMetrics(w.env.Metrics)
	if err != nil {
		return err
	}
	ports := podsapi.Ports{Source: podsapi.FromBus(w.env.Bus), Metrics: own, Watched: w.env.Pulse.Of}
	w.working.Go(func() {
		w.keep(ctx, "the Pods API can't be served", func(ctx context.Context) error {
			return podsapi.New(w.env.Config.RootDir, ports, w.env.Log).Run(ctx)
		})
	})
	return nil
}

// startClaims has the claims of pods prepared (DRA). The API server's credentials may come later.
func (w *wiring) startClaims(ctx context.Context) (*kube.Client, error) {
	k := &w.env.Config.Kubelet
	options := kube.Options{
		Daemon: "resource", Version: daemon.Version(), ContentType: k.ContentType,
		Certificate: w.env.Config.ClientCertificate, Log: w.env.Log,
	}.WithLimits(k.KubeAPIQPS, k.KubeAPIBurst)
	client, err := kube.Open(w.env.Config.Kubeconfig, options)
	if err != nil {
		return nil, err
	}
	if err := w.newClaims(client); err != nil {
		client.Close()
		return nil, err
	}
	w.working.Go(func() {
		if client.Await(ctx) == nil {
			w.keep(ctx, "claims of devices can't be prepared", w.service.claims.Run)
		}
	})
	return client, nil
}

func (w *wiring) newClaims(client *kube.Client) error {
	api, err := kube.ClaimsOf(client)
	if err != nil {
		return err
	}
	allocated := map[types.UID]bool{}
	for uid, a := range w.service.found.before {
		allocated[types.UID(uid)] = a.Phase == topic.Allocated
	}
	claims, err := dra.New(dra.Config{
		RootDir: w.env.Config.RootDir, Node: w.env.Config.NodeName, Allocated: allocated,
	}, dra.Ports{
		Claims: api, Slices: api, Events: w.env.Events, Metrics: w.env.Metrics, Watched: w.env.Pulse.Of, Log: w.env.Log,
	})
	if err == nil {
		w.service.claims, w.office = claims, dra.OfficeOf(claims)
	}
	return err
}

// serveOffice has the command line ask of claims.
func (w *wiring) serveOffice(ctx context.Context) {
	answer(ctx, w, "the command line can't list claims", topic.ResourceClaims, w.office.List)
	answer(ctx, w, "the command line can't give up on drivers", topic.ResourceForget, w.office.Forget)
}

// answer answers a call that pods can do without.
func answer[Req, Resp any](ctx context.Context, w *wiring, what string, call bus.Call[Req, Resp],
	handle func(context.Context, Req) (Resp, error),
) {
	w.working.Go(func() {
		w.keep(ctx, what, func(ctx context.Context) error { return call.Serve(ctx, w.env.Bus, handle) })
	})
}

// keep runs something until ctx ends, and again when it has failed: that is no reason for pods to lose the rest.
func (w *wiring) keep(ctx context.Context, what string, run func(context.Context) error) {
	for ctx.Err() == nil {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			w.env.Log.Error(what+", retrying", "error", err)
		}
		pause.For(ctx, servePause)
	}
}
