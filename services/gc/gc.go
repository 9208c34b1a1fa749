package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/daemon/psi"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/image"
	"kubelot.dev/services/gc/internal/logind"
	"kubelot.dev/services/gc/internal/logs"
	"kubelot.dev/services/gc/internal/shutdown"
	"kubelot.dev/services/gc/internal/signal"
)

// containers are the CRI calls about containers and sandboxes.
type containers interface {
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	RemoveContainer(ctx context.Context, id string) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// images are the CRI calls about images.
type images interface {
	ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(context.Context, *runtimeapi.ImageSpec) error
	ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	SandboxImage(context.Context) (string, error)
}

// sensor reads the signals.
type sensor interface {
	Read(now time.Time) (evict.Observations, error)
	Disks(now time.Time, paths signal.Filesystems) (evict.Observations, error)
}

// alarm waits for the time of the next reading.
type alarm interface {
	Wait(ctx context.Context, d time.Duration) (early bool)
}

// shutdowns ends the pods of a node that shuts down. It has a loop of its own: nothing that gc collects delays it.
type shutdowns interface {
	Run(ctx context.Context, problem func(error))
	Inbox() chan<- func()
}

// Ports are what gc works on.
type Ports struct {
	Containers containers
	Images     images
	Logs       logs.Rotator
	Sensor     sensor
	Alarm      alarm
	Shutdowns  shutdowns // nil for none
}

// filesystems are where things are.
type filesystems struct {
	signal.Filesystems
	layout evict.Layout
	known  bool
	// split is true if containers have a filesystem that is neither the images' nor the root directory's.
	split bool
}

// Service is the gc daemon. Its fields below the loop, except fs and settings, belong to the goroutine of Run.
type Service struct {
	Ports
	env  daemon.Env
	loop *loop.Loop

	// fs and settings are read outside the loop.
	fs       atomic.Pointer[filesystems]
	settings atomic.Pointer[settings]

	state    state
	schedule schedule
	tracker  *evict.Tracker
	obs      evict.Observations
	disks    evict.Observations
	disksAt  time.Time // of the last reading, before the first one of Run's begin
	restored bool
	held     [jobs]bool // the conditions that an earlier process has stated, by their reliefs
	pressure topic.Pressure
	passes   [jobs]pass
	// evicted are the pods that were evicted and are still there, and until when they should be gone.
	evicted map[string]time.Time
	records map[string]image.Record
	// stuck is true while images take more space than they may, and none can be removed.
	stuck   bool
	report  *reporter
	metrics *metrics
}

// Run is the gc daemon's work.
func Run(ctx context.Context, env daemon.Env) error {
	c := env.Config
	client, err := cri.Dial(c.RuntimeEndpoint, cri.Options{
		ImageEndpoint: c.ImageEndpoint, Timeout: c.Kubelet.RuntimeRequestTimeout.Duration, Metrics: env.Metrics,
	})
	if err != nil {
		return err
	}
	reader, err := signal.New("/", c.Kubelet.CgroupDriver, c.Kubelet.CgroupRoot)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	bell, err := psi.NewAlarm("/proc")
	switch {
	case bell == nil:
		return errors.Join(err, client.Close())
	case err != nil:
		env.Log.Info("no early warning by the kernel's pressure-stall information, reading signals twice a second",
			"error", err)
	}
	ports := Ports{Containers: client, Images: client, Logs: logs.Rotator{Runtime: client}, Sensor: reader, Alarm: bell}
	if ports.Shutdowns, err = newShutdowns(env); err != nil {
		return errors.Join(err, bell.Close(), client.Close())
	}
	s, err := New(ports, env)
	if err == nil {
		err = s.Run(ctx)
	}
	return errors.Join(err, bell.Close(), client.Close())
}

// newShutdowns talks to logind where the pods have a configured time only.
func newShutdowns(env daemon.Env) (*shutdown.Service, error) {
	groups := shutdown.Groups(&env.Config.Kubelet)
	if len(groups) == 0 {
		return shutdown.New(env, nil, nil)
	}
	return shutdown.New(env, groups, logind.New(logind.Options{
		Period: shutdown.Total(groups), Reserve: shutdown.Reserve, ConfDir: logind.ConfDir, Log: env.Log,
		Store: env.Connections,
	}))
}

// New makes the service. It starts nothing. The error says what is wrong with the configuration.
func New(ports Ports, env daemon.Env) (*Service, error) {
	set, err := newSettings(env.Config)
	if err != nil {
		return nil, err
	}
	s := &Service{
		Ports: ports, env: env, loop: loop.New(env.Bus), state: newState(), evicted: map[string]time.Time{},
		tracker: evict.NewTracker(set.thresholds, set.transition), schedule: newSchedule(set),
	}
	s.settings.Store(&set)
	s.fs.Store(&filesystems{Filesystems: signal.Filesystems{Node: env.Config.RootDir}})
	return s, nil
}

// Run collects and evicts until ctx ends. An error says why it can't begin.
func (s *Service) Run(ctx context.Context) error {
	var err error
	if s.metrics, err = newMetrics(s.env.Metrics); err != nil {
		return err
	}
	s.report, s.disksAt = newReporter(s.env), time.Now()
	if s.records, err = image.Load(s.recordsPath()); err != nil {
		s.env.Log.Warn("can't read the image records", "error", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.loop.Wait()
	defer cancel(errors.New("gc stops"))
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	loops := []chan<- func(){s.loop.Inbox()}
	if s.Shutdowns != nil {
		loops = append(loops, s.Shutdowns.Inbox())
		s.loop.Go(func() {
			s.Shutdowns.Run(ctx, func(err error) { s.report.problems.Set("shutdown of the node", err) })
		})
	}
	s.loop.Go(func() { s.sense(ctx) })
	s.loop.Go(func() { s.senseDisks(ctx) })
	s.loop.Go(func() {
		if err := topic.GCPlan.Serve(ctx, s.env.Bus, s.plan); err != nil {
			s.env.Log.Error("can't serve gc.plan", "error", err)
		}
	})
	s.env.Pulse.Of(ctx, loops...)
	s.env.Reloads.Take(func(c *config.Config) error { return s.reload(ctx, c) }, reloadable...)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case change := <-s.loop.Changes():
			change()
		}
		s.begin(ctx, time.Now())
	}
	return nil
}

// sense reads the signals twice a second, and at once when the alarm goes off.
func (s *Service) sense(ctx context.Context) {
	for ctx.Err() == nil {
		obs, err := s.Sensor.Read(time.Now())
		s.loop.Do(ctx, func() {
			s.report.problems.Set("signals", err)
			s.onReading(ctx, obs, time.Now())
		})
		s.Alarm.Wait(ctx, readEvery)
	}
}

// senseDisks reads the signals of the filesystems. They have a reader of their own: one that hangs leaves the others as
// they are.
func (s *Service) senseDisks(ctx context.Context) {
	for ctx.Err() == nil {
		obs, err := s.Sensor.Disks(time.Now(), s.fs.Load().Filesystems)
		s.loop.Do(ctx, func() {
			s.report.problems.Set("signals of filesystems", err)
			s.disks, s.disksAt = obs, time.Now()
		})
		pause.For(ctx, readEvery)
	}
}

// onReading judges the signals. It states no condition before it knows those that an earlier process has stated.
func (s *Service) onReading(ctx context.Context, obs evict.Observations, now time.Time) {
	if now.Sub(s.disksAt) > hangs {
		s.disks = nil
		s.report.problems.Set("signals of filesystems", fmt.Errorf("no reading for more than %s: a filesystem hangs, see "+
			"statfs of rootDir and of the runtime's", hangs))
	}
	maps.Copy(obs, s.disks)
	s.obs = obs
	if s.state.unread[topic.NodePressure.Name()] {
		return
	}
	due, p := s.tracker.Update(obs, now)
	s.publish(p, now)
	s.evict(ctx, due, now)
	fs := obs[evict.ImageFSAvailable]
	// If the last pass found nothing to remove, the usual period is soon enough.
	if !s.stuck && image.ToFree(s.settings.Load().images, image.Filesystem{Capacity: fs.Capacity, Available: fs.Available},
		false) > 0 {
		s.schedule.soon(jobImages, now)
	}
}

// publish publishes the node's conditions, and logs them when they change.
func (s *Service) publish(p evict.Pressure, now time.Time) {
	last := s.pressure
	next := topic.Pressure{
		Memory: p.Under[corev1.NodeMemoryPressure], Disk: p.Under[corev1.NodeDiskPressure],
		PID:     p.Under[corev1.NodePIDPressure],
		Message: p.Message, Since: last.Since, Relieved: p.Relieved,
	}
	if last.Since.IsZero() || last.Memory != next.Memory || last.Disk != next.Disk || last.PID != next.PID {
		next.Since = now
		s.env.Log.Info("node's conditions", "memory", next.Memory, "disk", next.Disk, "pid", next.PID, "reason", next.Message)
	}
	s.pressure = next
	s.report.conditions(next)
}

// place looks up where the runtime's filesystems are.
func (s *Service) place(ctx context.Context) func() {
	info, err := s.Images.ImageFsInfo(ctx)
	paths := signal.Filesystems{Node: s.env.Config.RootDir}
	if err == nil {
		paths.Image = mountpoint(info.GetImageFilesystems())
		paths.Container = cmp.Or(mountpoint(info.GetContainerFilesystems()), paths.Image)
		if paths.Image == "" {
			err = errors.New("CRI ImageFsInfo: the runtime names no filesystem of images")
		}
	}
	var layout evict.Layout
	var split bool
	if err == nil {
		layout, split, err = signal.Layout(paths)
	}
	return func() {
		s.report.problems.Set("filesystems", err)
		if err != nil {
			s.schedule.next[jobPlace] = time.Now().Add(retryPlace)
			return
		}
		if !split {
			paths.Container = ""
		}
		s.fs.Store(&filesystems{Filesystems: paths, layout: layout, known: true, split: split})
		s.tracker.SetThresholds(evict.ForLayout(s.settings.Load().thresholds, split))
	}
}

func mountpoint(all []*runtimeapi.FilesystemUsage) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].GetFsId().GetMountpoint()
}

func (s *Service) recordsPath() string {
	return filepath.Join(s.env.Config.RunDir, "gc", "images.json")
}

// errNoAnswer is a call that took too long.
var errNoAnswer = errors.New("no answer")

// call makes a call on the bus with its deadline.
func call[Req, Resp any](ctx context.Context, conn *bus.Conn, t bus.Call[Req, Resp], req Req) (Resp, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("%w within %s", errNoAnswer, callTimeout))
	defer cancel()
	return t.Do(ctx, conn, req)
}
