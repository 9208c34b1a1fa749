package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon"
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
	wg      sync.WaitGroup

	events   chan event
	missed   chan struct{}
	streams  chan streamState
	nodes    chan topic.Runtime
	probeNow chan struct{}
	results  chan result
	lagging  chan string
	woken    chan string
	lists    chan relisted
	retained chan []string
	pulse    chan func()

	tracker *tracker
	metrics *metrics
	pods    *bus.Writer[topic.PodObservation]
	node    *bus.Writer[topic.Runtime]
	// now is node.runtime as known; streamOpen and lastRelist are the loop's part of it.
	now        topic.Runtime
	known      bool
	streamOpen bool
	lastRelist time.Time
	began      time.Time
	relist     relistState
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

// relisted is the end of a reading of the lists.
type relisted struct {
	pods []observe.Listed
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
	options := Options{MaxImages: 50}
	if most := kubelet.NodeStatusMaxImages; most != nil {
		options.MaxImages = int(*most)
	}
	return errors.Join(New(client, env, options).Run(ctx), client.Close())
}

// New makes the service. It starts nothing.
func New(runtime Runtime, env daemon.Env, options Options) *Service {
	return &Service{
		runtime: runtime, env: env, options: options, tracker: newTracker(),
		events: make(chan event, eventRoom), missed: make(chan struct{}, 1), streams: make(chan streamState),
		nodes: make(chan topic.Runtime), probeNow: make(chan struct{}, 1),
		results: make(chan result), lagging: make(chan string), woken: make(chan string),
		lists: make(chan relisted), retained: make(chan []string), pulse: make(chan func()),
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
	defer s.wg.Wait()
	defer cancel(fmt.Errorf("pleg stops"))
	s.env.Pulse.Of(ctx, s.pulse)
	s.wg.Go(func() { s.follow(ctx) })
	s.wg.Go(func() { s.watchNode(ctx) })
	s.wg.Go(func() { s.readRetained(ctx) })
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
	case state := <-s.streams:
		s.onStream(state)
	case r := <-s.results:
		s.onResult(ctx, r)
	case uid := <-s.lagging:
		s.tracker.lagging(uid)
	case uid := <-s.woken:
		s.tracker.woken(time.Now(), uid)
	case <-s.relist.timer.C:
		s.startRelist(ctx)
	case r := <-s.lists:
		s.onLists(r)
	case n := <-s.nodes:
		s.onNode(n)
	case f := <-s.pulse:
		f()
	case uids := <-s.retained:
		for _, uid := range uids {
			s.tracker.retained(uid)
		}
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
		s.env.Log.Warn("the runtime's event stream is closed, pods are listed every second meanwhile", "error", state.err)
	}
	// What happened around the change has no event.
	s.relistIn(0)
	signal(s.probeNow)
	s.publishNode()
}

// startReadings begins to read dirty pods as far as the bound allows.
func (s *Service) startReadings(ctx context.Context) {
	for {
		uid, earlier, ok := s.tracker.next()
		if !ok {
			return
		}
		s.wg.Go(func() { s.read(ctx, uid, earlier) })
	}
}

// read reads one pod and answers on s.results; a reading that takes long says so on s.lagging before.
func (s *Service) read(ctx context.Context, uid string, earlier *topic.PodObservation) {
	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := result{uid: uid}
	end := make(chan struct{})
	s.wg.Go(func() {
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
		select {
		case s.lagging <- uid:
		case <-ctx.Done():
		}
		<-end
	}
	select {
	case s.results <- r:
	case <-ctx.Done():
	}
}

func (s *Service) onResult(ctx context.Context, r result) {
	now := time.Now()
	out := s.tracker.done(now, r.uid, r.seen, r.err)
	if r.err != nil {
		s.env.Log.Debug("pod can't be read", "uid", r.uid, "error", r.err)
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
		log.Error("the observation can't be published, so nobody hears of this pod", "error", err)
	}
	if out.publish || out.remove {
		s.metrics.count(s.tracker.pods)
	}
	s.wakeAfter(ctx, r.uid, out.wake)
	s.finishRelist(now)
}

// wakeAfter makes the pod dirty after a pause; none means that nothing is to be done.
func (s *Service) wakeAfter(ctx context.Context, uid string, pause time.Duration) {
	if pause <= 0 {
		return
	}
	s.wg.Go(func() {
		sleep(ctx, pause)
		select {
		case s.woken <- uid:
		case <-ctx.Done():
		}
	})
}

// readRetained finds the pods that the bus knows from an earlier pleg, to remove those that are gone.
func (s *Service) readRetained(ctx context.Context) {
	retained, err := topic.PLEGEvent.Read(ctx, s.env.Bus)
	if err != nil {
		if ctx.Err() == nil {
			s.env.Log.Warn("pods that ended while no pleg ran can't be found and stay on the bus", "error", err)
		}
		return
	}
	uids := make([]string, 0, len(retained))
	for uid := range retained {
		uids = append(uids, uid)
	}
	select {
	case s.retained <- uids:
	case <-ctx.Done():
	}
}
