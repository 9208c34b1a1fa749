package podsapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/resource/internal/podresources/endpoint"
)

// Metrics is the kubelet's metric of the API.
type Metrics struct{ dropped prometheus.Counter }

// NewMetrics registers the metric, once for a process.
func NewMetrics(r prometheus.Registerer) (Metrics, error) {
	m := Metrics{dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_pod_watch_events_dropped_total",
		Help: "Watches of the Pods API that were ended because their client was too slow.",
	})}
	return m, daemon.RegisterMetrics(r, "the Pods API", m.dropped)
}

// Ports are what the API works with.
type Ports struct {
	Source  Source
	Metrics Metrics
	// Watched is told of the loop that is to go on until ctx ends (daemon.Pulse); nil for nobody.
	Watched func(ctx context.Context, loops ...chan<- func())
}

// Server is the API. Its Run is the goroutine that owns the book and the watchers.
type Server struct {
	ports    Ports
	log      *slog.Logger
	endpoint endpoint.Endpoint
	loop     *loop.Loop

	book     *book
	watchers watchers
}

// socketPath is the path of the API's socket, below the kubelet's root directory.
func socketPath(rootDir string) string { return filepath.Join(rootDir, "pods-api", "pods-api.sock") }

// New makes the API of the kubelet's root directory. It starts nothing.
func New(rootDir string, ports Ports, log *slog.Logger) *Server {
	s := &Server{
		ports: ports, log: log, loop: loop.New(nil), book: newBook(), watchers: watchers{all: map[*watcher]bool{}},
	}
	register := func(r grpc.ServiceRegistrar) { podsv1alpha1.RegisterPodsServer(r, &calls{server: s}) }
	s.endpoint = endpoint.Endpoint{Path: socketPath(rootDir), Register: register, Log: log}
	return s
}

// errBusClosed ends a server whose source has ended.
var errBusClosed = errors.New("the connection to the bus is closed")

// Run serves the API until ctx ends, once. The error says why it can't be served.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pods, err := s.ports.Source.Pods(ctx)
	if err != nil {
		return fmt.Errorf("read the pods for the Pods API: %w", err)
	}
	statuses, err := s.ports.Source.Statuses(ctx)
	if err != nil {
		return fmt.Errorf("read the pods' statuses for the Pods API: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- s.endpoint.Run(ctx) }()
	if s.ports.Watched != nil {
		s.ports.Watched(ctx, s.loop.Inbox())
	}
	return s.own(ctx, inputs{pods, statuses, served}, cancel)
}

// inputs are what the owner of the book hears of.
type inputs struct {
	pods     <-chan bus.Change[topic.Pod]
	statuses <-chan bus.Change[topic.Merged]
	served   <-chan error
}

// own owns the book until nobody is served any more. That may be a little later than the end of ctx, as calls that are
// under way are still answered.
func (s *Server) own(ctx context.Context, in inputs, cancel context.CancelCauseFunc) error {
	var lost error
	lose := func() {
		if ctx.Err() == nil {
			lost = errBusClosed
			cancel(lost)
		}
	}
	ended := ctx.Done()
	for {
		select {
		case err := <-in.served:
			return errors.Join(lost, err)
		case <-ended:
			ended = nil
			s.watchers.close()
		case c, ok := <-in.pods:
			if !ok {
				in.pods = nil
				lose()
				continue
			}
			s.publish(s.book.podChanged(c))
		case c, ok := <-in.statuses:
			if !ok {
				in.statuses = nil
				lose()
				continue
			}
			s.publish(s.book.statusChanged(c))
		case do := <-s.loop.Changes():
			do()
		}
	}
}

// publish tells the watchers of a change of the book.
func (s *Server) publish(e *event, err error) {
	if err != nil {
		s.log.Error("a pod can't be shown by the Pods API", "error", err)
	}
	if e == nil {
		return
	}
	if dropped := s.watchers.tell(e); dropped > 0 {
		s.ports.Metrics.dropped.Add(float64(dropped))
		s.log.Warn("clients of the Pods API are too slow: their watches were ended", "watches", dropped)
	}
}
