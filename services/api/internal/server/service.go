package server

import (
	"context"
	"errors"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // counts the requests to the API server
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/api/internal/auth"
	"kubelot.dev/services/api/internal/gather"
	"kubelot.dev/services/api/internal/state"
	"kubelot.dev/services/api/internal/traces"
)

// streamer prepares streams into containers and sandboxes.
type streamer interface {
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

// runtime is what the daemon asks of the container runtime.
type runtime interface {
	streamer
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error
}

// Service serves the node's API. The state belongs to the goroutine of Run; requests ask it through ask.
type Service struct {
	env     daemon.Env
	runtime runtime
	rules   auth.Rules
	metrics *metrics
	gather  *gather.Gatherer
	state   *state.State
	traces  *traces.Tracer
	machineLogs

	loop   *loop.Loop
	failed chan error
	pods   backlog
}

// backlog is what the bus has of pods when the daemon starts.
type backlog struct {
	unread int           // topics that have not been read yet
	read   chan struct{} // closed once all have
}

// machineLogs are where the machine's logs are: systemLogs is the directory that /logs/ shows, journalctl what reads
// the journal. Tests have their own.
type machineLogs struct{ systemLogs, journalctl string }

// New makes the service. It starts nothing; the error says that metrics clash, or that nothing can be traced.
func New(env daemon.Env, r runtime) (*Service, error) {
	m, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	t, err := traces.New(env)
	if err != nil {
		return nil, err
	}
	return &Service{
		env: env, runtime: r, rules: auth.Rules{Node: env.Config.NodeName}, metrics: m,
		gather: gather.New(env.Config.RunDir, env.Metrics, legacyregistry.DefaultGatherer, t != nil),
		state:  state.New(), traces: t,
		machineLogs: machineLogs{systemLogs, journalctl},
		loop:        loop.New(env.Bus), failed: make(chan error), pods: backlog{read: make(chan struct{})},
	}, nil
}

// Run serves until ctx ends. An error says what can't be served.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.loop.Wait()
	defer cancel(errors.New("kubelot-api is stopping"))
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	s.traces.Begin(ctx, s.loop)
	s.serve(ctx)
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case change := <-s.loop.Changes():
			change()
		}
	}
}

// ask has the loop answer a question about the state. What f returns must not be changed.
func ask[T any](ctx context.Context, s *Service, f func(*state.State) T) (T, error) {
	return loop.Ask(ctx, s.loop, func() T { return f(s.state) })
}

// readPatience is how long a question about pods waits until the bus has been read. It is a variable for tests only.
var readPatience = 10 * time.Second

// askPods is ask about pods: those that are on the bus are known before it is answered.
func askPods[T any](ctx context.Context, s *Service, f func(*state.State) T) (answer T, err error) {
	patience := time.NewTimer(readPatience)
	defer patience.Stop()
	select {
	case <-s.pods.read:
		return ask(ctx, s, f)
	case <-patience.C:
		return answer, errUnread
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
}

// subscribe has the state keep the values of every topic that is read.
func (s *Service) subscribe(ctx context.Context) error {
	w := s.state
	return errors.Join(
		follow(ctx, s, topic.PodUpdate, also(s.traces.Pod, loop.Into(w.Updates))),
		follow(ctx, s, topic.PodSources, loop.Into(w.Sources)),
		follow(ctx, s, topic.PodMirror, loop.Into(w.Mirrors)),
		follow(ctx, s, topic.StatusPatch, loop.Into(w.Computed)),
		follow(ctx, s, topic.MergedStatus, also(s.traces.Status, loop.Into(w.Merged))),
		follow(ctx, s, topic.PLEGEvent, loop.Into(w.Seen)),
		loop.Follow(ctx, s.loop, topic.NodeObject, loop.Into(w.Node)),
		loop.Follow(ctx, s.loop, topic.Health, also(loop.Into(w.Health), func(c bus.Change[topic.DaemonHealth]) {
			if h, known := w.Health[c.Key]; known {
				// From now on its age is told by the clock that nobody sets.
				h.Beat = time.Now().Add(-max(0, time.Since(h.Beat)))
				w.Health[c.Key] = h
			}
		})),
		loop.Follow(ctx, s.loop, topic.ResourcesOfNode, loop.Into(w.Resources)),
	)
}

// follow has the loop handle every change of a topic about pods.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], handle func(bus.Change[T])) error {
	s.pods.unread++
	read := false
	return loop.Follow(ctx, s.loop, t, func(c bus.Change[T]) {
		handle(c)
		if c.Synced && !read {
			read = true
			if s.pods.unread--; s.pods.unread == 0 {
				close(s.pods.read)
			}
		}
	})
}

// also gives a change to both.
func also[T any](first, second func(bus.Change[T])) func(bus.Change[T]) {
	return func(c bus.Change[T]) {
		first(c)
		second(c)
	}
}
