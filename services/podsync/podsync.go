package podsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/services/podsync/internal/act"
	"kubelot.dev/services/podsync/internal/cgroups"
	"kubelot.dev/services/podsync/internal/facts"
	"kubelot.dev/services/podsync/internal/hooks"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/kernel"
	"kubelot.dev/services/podsync/internal/meter"
	"kubelot.dev/services/podsync/internal/objects"
	"kubelot.dev/services/podsync/internal/pulled"
	"kubelot.dev/services/podsync/internal/report"
	"kubelot.dev/services/podsync/internal/slots"
	"kubelot.dev/services/podsync/internal/source"
)

// Daemon is kubelot-podsync.
var Daemon = daemon.Spec{
	Name:       "podsync",
	Doc:        "Makes the pods that are wanted on this node run, and ends those that are not.",
	Contract:   Contract,
	Processors: 4,
	Run: func(ctx context.Context, env daemon.Env) error {
		s, err := New(env)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	},
}

// Service is the podsync daemon.
type Service struct {
	cfg     *config.Config
	bus     *bus.Conn
	log     *slog.Logger
	health  daemon.HealthReporter
	pulse   *daemon.Pulse
	report  *report.Reporter
	meter   *meter.Meter
	runtime *cri.Client
	kube    *kube.Client
	objects *objects.Objects
	facts   *facts.Facts
	cgroups *cgroups.Manager
	pulls   *pulled.Records
	actor   *act.Actor
	sources []source.Source
	// inherited are the connections of earlier processes of this daemon.
	inherited *inherited
	away      string // why the runtime couldn't be read when it was last tried
}

// New wires the daemon. It connects to nothing yet.
func New(env daemon.Env) (*Service, error) {
	s := &Service{cfg: env.Config, bus: env.Bus, log: env.Log, health: env.Health, pulse: env.Pulse}
	s.report = report.New(env.Bus, env.Events, env.Log)
	var err error
	if s.meter, err = meter.New(env.Metrics); err != nil {
		return nil, err
	}
	k := &s.cfg.Kubelet
	s.runtime, err = cri.Dial(s.cfg.RuntimeEndpoint, cri.Options{
		ImageEndpoint: s.cfg.ImageEndpoint, Timeout: k.RuntimeRequestTimeout.Duration, Metrics: env.Metrics,
		Dialer: env.Connections.Dialer("cri"),
	})
	if err != nil {
		return nil, err
	}
	s.inherited = inherit(env.Connections.Inherited(), k.RuntimeRequestTimeout.Duration, s.log)
	return s, nil
}

// Run does the daemon's work until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	defer s.runtime.Close()
	if err := kernel.Prepare("/proc", kernelOptions(s.cfg), s.log); err != nil {
		return err
	}
	if err := s.connectKube(); err != nil {
		return err
	}
	driver, err := s.cgroupDriver(ctx)
	if err != nil {
		return err
	}
	if err := s.prepare(driver); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.objects.Run(ctx); return nil })
	group.Go(func() error { s.inherited.run(ctx); return nil })
	group.Go(func() error { s.pulls.Run(ctx, s.images); return nil })
	sets := make(chan source.Set)
	for _, src := range s.sources {
		group.Go(func() error {
			if err := src.Run(ctx, sets); err != nil && ctx.Err() == nil {
				return fmt.Errorf("pod source %s: %w", src.Name(), err)
			}
			return nil
		})
	}
	group.Go(func() error { return s.dispatch(ctx, sets) })
	err = group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// connectKube makes the client of the API server. There may be no credentials for it yet; static pods don't wait for them.
func (s *Service) connectKube() error {
	if s.cfg.Standalone() {
		return nil
	}
	k := &s.cfg.Kubelet
	options := kube.Options{Daemon: "podsync", ContentType: k.ContentType, Burst: int(k.KubeAPIBurst), Log: s.log, Certificate: s.cfg.ClientCertificate}
	if k.KubeAPIQPS != nil {
		options.QPS = float32(*k.KubeAPIQPS)
	}
	var err error
	s.kube, err = kube.Open(s.cfg.Kubeconfig, options)
	return err
}

// cgroupDriver waits for the runtime and asks which cgroup driver it uses (KEP-4033); the configuration's counts where
// the runtime doesn't tell.
func (s *Service) cgroupDriver(ctx context.Context) (string, error) {
	for {
		answer, err := s.runtime.RuntimeConfig(ctx)
		switch {
		case err == nil && answer.GetLinux() != nil:
			return strings.ToLower(answer.GetLinux().GetCgroupDriver().String()), nil
		case err == nil, cri.IsUnimplemented(err):
			return s.cfg.Kubelet.CgroupDriver, nil
		}
		if err := s.runtimeAway(ctx, err); err != nil {
			return "", err
		}
	}
}

// runtimeAway says that the runtime doesn't answer, once for each reason, and waits a moment.
func (s *Service) runtimeAway(ctx context.Context, err error) error {
	if text := err.Error(); text != s.away {
		s.away = text
		s.health.Set(topic.Unhealthy, "the container runtime can't be read: "+text)
		s.log.Error("the container runtime can't be read; trying until it can", "error", err, "retry_every", runtimeRetry)
	}
	select {
	case <-time.After(runtimeRetry):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prepare makes the parts that need the clients.
func (s *Service) prepare(cgroupDriver string) error {
	k := &s.cfg.Kubelet
	s.objects = objects.New(s.kube, kube.Strategy(k.ConfigMapAndSecretChangeDetectionStrategy))
	var err error
	if s.facts, err = facts.New(s.cfg, s.objects, s.log); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.cfg.RootDir, "pods"), 0o750); err != nil {
		return fmt.Errorf("create the directory of pods: %w", err)
	}
	userNS, err := act.NewUserNamespaces(s.cfg.RootDir, userNSLength(k.UserNamespaces), int(k.MaxPods))
	if err != nil {
		return err
	}
	if s.cgroups, err = newCgroups(s.cfg, cgroupDriver, s.meter); err != nil {
		return err
	}
	if s.pulls, err = pulled.Open(pullConfig(s.cfg, s.meter, s.log)); err != nil {
		return err
	}
	s.sources = s.newSources()
	images := imageConfig(s.cfg)
	images.Pulled, images.Asked, images.Records = s.meter.Pulled, s.meter.ImageAsked, s.pulls
	s.actor = act.New(act.Deps{
		Sandboxes: s.runtime, Containers: s.runtime, Sizes: s.runtime, Observe: s.observe,
		Images:  image.New(images, s.runtime, s.imageEvent),
		Sources: s.objects, Hooks: s.hooks(), Cgroups: s.cgroups,
		Slots: slots.New(startSlots()), Stops: slots.New(stopSlots()), Node: s.facts, SubPaths: s.subPaths, UserNS: userNS,
		Settling: s.inherited.settling, Report: s.report, Meter: s.meter, Log: s.log,
	})
	return nil
}

// startSlots is how many sandboxes and containers are brought up at once: twice as many as the machine has
// cores, since a start waits for the disk and the kernel part of its time (test/bench finds the best number).
func startSlots() int { return 2 * runtime.NumCPU() }

// stopSlots is how many containers and sandboxes are ended at once, by the same reckoning.
func stopSlots() int { return 2 * runtime.NumCPU() }

func (s *Service) observe(ctx context.Context, uid string, earlier *topic.PodObservation) (topic.PodObservation, error) {
	return observe.PodSince(ctx, s.runtime, uid, earlier)
}

func (s *Service) subPaths(ctx context.Context, req topic.SubPathRequest) (topic.SubPathReply, error) {
	return topic.VolumeSubPath.Do(ctx, s.bus, req)
}

func (s *Service) images(ctx context.Context) ([]*runtimeapi.Image, error) {
	return s.runtime.ListImages(ctx, nil)
}

func (s *Service) imageEvent(e image.Event) {
	s.report.Event(e.Pod, e.FieldPath, e.Type, e.Reason, e.Message)
}

// hooks runs lifecycle hooks and tells the user of what went wrong on the way to their success.
func (s *Service) hooks() *hooks.Runner {
	r := hooks.New(execer{s.runtime})
	r.Warn = func(target hooks.Target, reason, message string) {
		s.report.Event(target.Pod, report.FieldPath(target.Pod, target.Container.Name), corev1.EventTypeWarning, reason, message)
		if reason == hooks.ReasonHTTPFallback {
			s.meter.HTTPInstead()
		}
	}
	r.SleepEnded = s.meter.SleepEnded
	return r
}

func (s *Service) newSources() []source.Source {
	var list []source.Source
	k := &s.cfg.Kubelet
	if s.kube != nil {
		list = append(list, source.NewAPI(s.reflectPods))
	}
	if k.StaticPodPath != "" {
		list = append(list, source.NewFile(source.FileConfig{
			Path: k.StaticPodPath, Every: k.FileCheckFrequency.Duration, NodeName: s.cfg.NodeName, Problem: s.manifestProblem,
		}))
	}
	if k.StaticPodURL != "" {
		header := http.Header{}
		for name, values := range k.StaticPodURLHeader {
			header[http.CanonicalHeaderKey(name)] = values
		}
		list = append(list, source.NewURL(source.URLConfig{
			URL: k.StaticPodURL, Header: header, Every: k.HTTPCheckFrequency.Duration, NodeName: s.cfg.NodeName, Problem: s.manifestProblem,
		}))
	}
	return list
}

// reflectPods turns the watch of this node's pods into whole sets.
func (s *Service) reflectPods(ctx context.Context, handle func([]*corev1.Pod)) error {
	gather(s.kube.WatchPods(ctx, s.cfg.NodeName), handle)
	return ctx.Err()
}

// manifestProblem tells the operator of a manifest that can't be used, where it can be seen: in the log and on the node.
func (s *Service) manifestProblem(p source.Problem) {
	if p.Solved {
		s.log.Info("manifest can be used again", "source", string(p.Source), "where", p.Where)
		return
	}
	if p.Warning {
		s.log.Warn("manifest is used although something is wrong with it", "source", string(p.Source), "where", p.Where, "error", p.Message)
	} else {
		s.log.Error("manifest can't be used", "source", string(p.Source), "where", p.Where, "error", p.Message)
	}
	s.report.NodeEvent(s.cfg.NodeName, corev1.EventTypeWarning, "InvalidManifest", p.Where+": "+p.Message)
}

func (s *Service) sourceNames() []topic.Source {
	var names []topic.Source
	for _, src := range s.sources {
		names = append(names, src.Name())
	}
	return names
}

func enforces(list []string, what string) bool {
	for _, item := range list {
		if strings.EqualFold(item, what) {
			return true
		}
	}
	return false
}
