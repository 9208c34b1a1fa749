package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/cgroupmove"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/services/podsync/internal/image/pullrecords"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/node/firewall"
	"kubelot.dev/services/podsync/internal/node/kernel"
	"kubelot.dev/services/podsync/internal/node/objects"
	"kubelot.dev/services/podsync/internal/node/rootdir"
	"kubelot.dev/services/podsync/internal/runtime/handover"
	"kubelot.dev/services/podsync/internal/runtime/nodeinfo"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker/executor"
	"kubelot.dev/services/podsync/internal/worker/metrics"
)

// Daemon is kubelot-podsync.
var Daemon = daemon.Spec{
	Name:       "podsync",
	Doc:        "Runs the pods that are wanted on this node, and ends those that are not.",
	Contract:   Contract,
	Processors: 4,
	Run: func(ctx context.Context, env daemon.Env) error {
		if err := kernel.Prepare("/proc", kernelOptions(env.Config), env.Log); err != nil {
			return err
		}
		clients, err := connect(env)
		if err != nil {
			return err
		}
		defer clients.Runtime.Close()
		s, err := New(env, clients)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		var beside sync.WaitGroup
		defer beside.Wait()
		defer stop()
		if *env.Config.Kubelet.MakeIPTablesUtilChains {
			beside.Go(func() { firewall.Run(ctx, env.Log) })
		}
		beside.Go(func() { cgroupmove.System(ctx, env.Config.Kubelet.SystemCgroups, env.Log) })
		return s.Run(ctx)
	},
}

// Service is the podsync daemon.
type Service struct {
	clients    Clients
	objects    *objects.Objects
	pulls      *pullrecords.Records
	handover   *handover.Keeper
	dispatcher *dispatcher
	sources    []source.Source
	sets       chan source.Set
}

// New makes the daemon, ready to run. It starts nothing, and asks neither the runtime nor the API server.
func New(env daemon.Env, clients Clients) (*Service, error) {
	cfg := env.Config
	_, perMillion := config.Tracing(cfg)
	traced := topic.Sampling(perMillion)
	measured, err := metrics.New(env.Metrics, traced)
	if err != nil {
		return nil, err
	}
	if err := rootdir.Make(cfg.RootDir, cfg.PodLogsDir, env.Log); err != nil {
		return nil, err
	}
	s := &Service{clients: clients, sets: make(chan source.Set)}
	s.objects = objects.New(clients.Kube, kube.Strategy(cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy))
	s.handover = handover.Take(env.Connections.Inherited(connectionsTo), cfg.Kubelet.RuntimeRequestTimeout.Duration,
		env.Log)
	if s.pulls, err = pullrecords.Open(pullConfig(cfg, measured, env.Log)); err != nil {
		return nil, err
	}
	p := parts{
		Env: env, clients: clients, objects: s.objects, pulls: s.pulls, metrics: measured,
		report: events.New(env.Bus, env.Events, traced, cfg.RunDir, env.Log), settling: s.handover.Settling,
	}
	if p.providers, err = openProviders(env, clients.Kube, measured); err != nil {
		return nil, err
	}
	if p.node, err = nodeinfo.New(cfg, s.objects, env.Log); err != nil {
		return nil, err
	}
	if p.cgroups, err = newCgroups(cfg, measured); err != nil {
		return nil, err
	}
	if p.userNS, err = executor.NewUserNamespaces(cfg.RootDir, userNSLength(cfg.Kubelet.UserNamespaces),
		int(cfg.Kubelet.MaxPods)); err != nil {
		return nil, err
	}
	if s.sources = clients.Sources; s.sources == nil {
		s.sources = p.newSources()
	}
	s.dispatcher = newDispatcher(p, sourceNames(s.sources))
	return s, nil
}

// Run does the daemon's work until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.objects.Run(ctx); return nil })
	group.Go(func() error { s.handover.Run(ctx); return nil })
	group.Go(func() error { s.pulls.Run(ctx, s.images); return nil })
	for _, src := range s.sources {
		group.Go(func() error {
			if err := src.Run(ctx, s.sets); err != nil && ctx.Err() == nil {
				return fmt.Errorf("pod source %s: %w", src.Name(), err)
			}
			return nil
		})
	}
	group.Go(func() error { return s.dispatcher.run(ctx, s.sets) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// images lists the runtime's images. It waits for a runtime that doesn't answer at start.
func (s *Service) images(ctx context.Context) ([]*runtimeapi.Image, error) {
	select {
	case <-s.dispatcher.recovered:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.clients.Runtime.ListImages(ctx, nil)
}
