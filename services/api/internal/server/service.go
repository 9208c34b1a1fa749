package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // counts the requests to the API server
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/api/internal/auth"
	"kubelot.dev/services/api/internal/gather"
	"kubelot.dev/services/api/internal/world"
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

// Service serves the node's API. The world belongs to the goroutine of Run; requests ask it through ask.
type Service struct {
	env     daemon.Env
	runtime runtime
	rules   auth.Rules
	metrics *metrics
	gather  *gather.Gatherer
	world   *world.World
	// systemLogs is the directory that /logs/ shows, journalctl what reads the journal; tests have their own.
	systemLogs string
	journalctl string

	wg     sync.WaitGroup
	inbox  chan func(*world.World)
	failed chan error
	closed chan struct{}
}

// New makes the service. It starts nothing; the error says that metrics clash.
func New(env daemon.Env, r runtime) (*Service, error) {
	m, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	return &Service{
		env: env, runtime: r, rules: auth.Rules{Node: env.Config.NodeName}, metrics: m,
		gather: gather.New(env.Config.RunDir, env.Metrics, legacyregistry.DefaultGatherer), world: world.New(), systemLogs: systemLogs, journalctl: journalctl,
		inbox: make(chan func(*world.World)), failed: make(chan error), closed: make(chan struct{}),
	}, nil
}

// Run serves until ctx ends. An error says what can't be served.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.wg.Wait()
	defer cancel(errors.New("api stops"))
	defer close(s.closed)
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	s.serve(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case do := <-s.inbox:
			do(s.world)
		}
	}
}

// errClosed answers requests that come while the daemon ends.
var errClosed = errors.New("kubelot-api is stopping")

// ask has the loop answer a question about the world. What f returns must not be changed.
func ask[T any](ctx context.Context, s *Service, f func(*world.World) T) (answer T, err error) {
	done := make(chan struct{})
	question := func(w *world.World) {
		answer = f(w)
		close(done)
	}
	select {
	case s.inbox <- question:
		// The loop has taken it, so it answers.
		<-done
		return answer, nil
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	case <-s.closed:
		return answer, errClosed
	}
}

// subscribe has the messages of every topic that is read change the world.
func (s *Service) subscribe(ctx context.Context) error {
	return errors.Join(
		follow(ctx, s, topic.PodUpdate, (*world.World).SetPod, (*world.World).DropPod),
		follow(ctx, s, topic.PodObject, (*world.World).SetObject, (*world.World).DropObject),
		follow(ctx, s, topic.PodSources, (*world.World).SetSources, (*world.World).DropSources),
		follow(ctx, s, topic.PodMirror, (*world.World).SetMirror, (*world.World).DropMirror),
		follow(ctx, s, topic.StatusPatch, (*world.World).SetStatus, (*world.World).DropStatus),
		follow(ctx, s, topic.PLEGEvent, (*world.World).SetSeen, (*world.World).DropSeen),
		follow(ctx, s, topic.ProbeResult, (*world.World).SetProbe, (*world.World).DropProbe),
		follow(ctx, s, topic.NodeObject, (*world.World).SetNode, (*world.World).DropNode),
		follow(ctx, s, topic.Health, (*world.World).SetHealth, (*world.World).DropHealth),
	)
}

func follow[T any](ctx context.Context, s *Service, t bus.State[T], set func(*world.World, string, T), drop func(*world.World, string)) error {
	changes, err := t.Watch(ctx, s.env.Bus)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.Name(), err)
	}
	s.wg.Go(func() {
		for c := range changes {
			do := func(w *world.World) { set(w, c.Key, c.Value) }
			switch {
			case c.Synced:
				continue
			case c.Deleted:
				do = func(w *world.World) { drop(w, c.Key) }
			}
			select {
			case s.inbox <- do:
			case <-ctx.Done():
			}
		}
	})
	return nil
}
