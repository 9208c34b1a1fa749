package pleg

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
)

const (
	// relistOpen and relistClosed are the intervals of the relist with and without the event stream.
	relistOpen, relistClosed = time.Minute, time.Second
	// relistSoon is the pause before a relist that a single pod asks for.
	relistSoon = 100 * time.Millisecond
	// readTimeout bounds one relist, or one reading of a pod beyond the deadlines of its containers.
	readTimeout = 30 * time.Second
	// slowAfter is when a reading stops to count against the bound of those under way.
	slowAfter = 500 * time.Millisecond
	// eventRoom is the number of events that may wait for the loop, which takes microseconds for each.
	eventRoom = 4096
)

// nodeReader is what is asked about the runtime itself.
type nodeReader interface {
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	Version(context.Context) (*runtimeapi.VersionResponse, error)
	RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
}

// Runtime is all that pleg asks of the container runtime; cri.Client has it.
type Runtime interface {
	observe.Reader
	nodeReader
	GetContainerEvents(context.Context, func(*runtimeapi.ContainerEventResponse)) error
}

// Options are the configuration.
type Options struct {
	// MaxImages bounds the images in node.runtime; negative means all.
	MaxImages int
}

// Service publishes what runs. Its fields below the channels belong to the goroutine of Run.
type Service struct {
	runtime Runtime
	env     daemon.Env
	options Options
	loop    *loop.Loop

	events   chan event
	missed   chan struct{}
	probeNow chan struct{}

	tracker *tracker
	metrics *metrics
	pods    *bus.Writer[topic.PodObservation]
	node    *bus.Writer[topic.Runtime]
	// now is node.runtime as known; streamOpen and firstRelist are the loop's part of it.
	now         topic.Runtime
	known       bool
	streamOpen  bool
	firstRelist time.Time
	lastRelist  time.Time
	began       time.Time
	relist      relistState
}

// relistState is when the lists are read.
type relistState struct {
	timer   *time.Timer
	due     time.Time
	running bool
	begin   time.Time
	failed  bool
}

// result is the end of the reading of one pod.
type result struct {
	uid  string
	seen topic.PodObservation
	err  error
}

// Run is the pleg daemon's work.
func Run(ctx context.Context, env daemon.Env) error {
	kubelet := &env.Config.Kubelet
	client, err := cri.Dial(env.Config.RuntimeEndpoint, cri.Options{
		ImageEndpoint: env.Config.ImageEndpoint, Timeout: kubelet.RuntimeRequestTimeout.Duration, Metrics: env.Metrics,
	})
	if err != nil {
		return err
	}
	service := New(client, env, Options{MaxImages: int(*kubelet.NodeStatusMaxImages)})
	return errors.Join(service.Run(ctx), client.Close())
}

// New makes the service. It starts nothing.
func New(runtime Runtime, env daemon.Env, options Options) *Service {
	return &Service{
		runtime: runtime, env: env, options: options, loop: loop.New(env.Bus), tracker: newTracker(),
		events: make(chan event, eventRoom), missed: make(chan struct{}, 1), probeNow: make(chan struct{}, 1),
	}
}

// Run publishes until ctx ends. An error says why it can't begin.
func (s *Service) Run(ctx context.Context) error {
	var err error
	if s.metrics, err = newMetrics(s.env.Metrics); err != nil {
		return err
	}
	s.pods, s.node = topic.PLEGEvent.Writer(s.env.Bus), topic.NodeRuntime.Writer(s.env.Bus)
	s.began = time.Now()
	s.relist.timer = time.NewTimer(0)
	defer s.relist.timer.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.loop.Wait()
	defer cancel(errors.New("pleg stops"))
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	s.loop.Go(func() { s.follow(ctx) })
	s.loop.Go(func() { s.watchNode(ctx) })
	s.loop.Go(func() { s.readRetained(ctx) })
	for ctx.Err() == nil {
		s.startReadings(ctx)
		s.step(ctx)
	}
	return nil
}

// step handles one thing that happened.
func (s *Service) step(ctx context.Context) {
	select {
	case <-ctx.Done():
	case e := <-s.events:
		s.onEvent(ctx, e)
	case <-s.missed:
		s.metrics.discarded.Inc()
		s.relistIn(0)
	case <-s.relist.timer.C:
		s.startRelist(ctx)
	case change := <-s.loop.Changes():
		change()
	}
}

func (s *Service) onEvent(ctx context.Context, e event) {
	uid, pause, known := s.tracker.event(time.Now(), e)
	if !known {
		s.relistIn(relistSoon)
		return
	}
	s.wakeAfter(ctx, uid, pause)
}

func (s *Service) onStream(state streamState) {
	if state.open == s.streamOpen {
		return
	}
	s.streamOpen = state.open
	if state.open {
		s.metrics.streams.Inc()
		s.env.Log.Info("the runtime's event stream is open")
	} else {
		s.env.Log.Warn("the runtime's event stream is closed, listing pods every second meanwhile", "error", state.err)
	}
	// Changes of pods around this moment may have no event.
	s.relistIn(0)
	signal(s.probeNow)
	s.publishNode()
}

// startReadings begins to read dirty pods as far as the bound allows.
func (s *Service) startReadings(ctx context.Context) {
	for {
		uid, earlier, ok := s.tracker.beginNext()
		if !ok {
			return
		}
		s.loop.Go(func() { s.read(ctx, uid, earlier) })
	}
}

// read reads one pod and gives the result to the loop. A reading that takes long is reported there before.
func (s *Service) read(ctx context.Context, uid string, earlier *topic.PodObservation) {
	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := result{uid: uid}
	end := make(chan struct{})
	s.loop.Go(func() {
		defer close(end)
		began := time.Now()
		defer func() { s.metrics.podRelist.Observe(time.Since(began).Seconds()) }()
		r.seen, r.err = observe.PodSince(readCtx, s.runtime, uid, earlier)
	})
	slow := time.NewTimer(slowAfter)
	defer slow.Stop()
	select {
	case <-end:
	case <-slow.C:
		s.loop.Do(ctx, func() { s.tracker.lagging(uid) })
		<-end
	}
	s.loop.Do(ctx, func() {
		if ctx.Err() == nil { // else pleg stops, and the reading may have been broken off
			s.onResult(ctx, r)
		}
	})
}

func (s *Service) onResult(ctx context.Context, r result) {
	now, before := time.Now(), s.tracker.seen(r.uid)
	out := s.tracker.done(now, r.uid, r.seen, r.err)
	s.metrics.count(before, s.tracker.seen(r.uid))
	if r.err != nil {
		s.env.Log.Debug("can't read a pod", "uid", r.uid, "error", r.err)
		s.relistIn(relistClosed)
		return
	}
	log := s.env.Log.With("pod", r.seen.Name, "namespace", r.seen.Namespace, "uid", r.uid)
	var err error
	switch {
	case out.publish:
		log.Debug("pod changed", "changes", out.changes)
		err = s.pods.Set(r.uid, r.seen)
	case out.remove:
		log.Debug("pod is gone from the runtime")
		err = s.pods.Delete(r.uid)
	}
	if err != nil {
		log.Error("can't publish an observation, no daemon sees this pod's change", "error", err)
	}
	s.wakeAfter(ctx, r.uid, out.wake)
	s.finishRelist(now)
}

// wakeAfter makes the pod dirty after a pause; none means that there is nothing to do.
func (s *Service) wakeAfter(ctx context.Context, uid string, after time.Duration) {
	if after <= 0 {
		return
	}
	s.loop.Go(func() {
		pause.For(ctx, after)
		s.loop.Do(ctx, func() { s.tracker.woken(time.Now(), uid) })
	})
}

// readRetained finds the pods that the bus knows from an earlier pleg, to remove those that are gone.
func (s *Service) readRetained(ctx context.Context) {
	retained, err := topic.PLEGEvent.Read(ctx, s.env.Bus)
	if err != nil {
		if ctx.Err() == nil {
			s.env.Log.Warn("can't find the pods that ended while no pleg ran, they stay on the bus", "error", err)
		}
		return
	}
	s.loop.Do(ctx, func() {
		for uid := range retained {
			s.tracker.retained(uid)
		}
	})
}
