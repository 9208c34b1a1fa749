package volume

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/agenda"
	"kubelot.dev/services/volume/internal/csi"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/persistent"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// stopPatience is how long Run waits for its workers at the end. One that hangs in a system call can't be waited for.
const stopPatience = 5 * time.Second

// Watched is a kind of API object that pods refer to; kube.ObjectCache is one.
type Watched[T any] interface {
	plugin.Source[T]
	// Hold makes keys the whole set of objects that owner refers to.
	Hold(owner string, keys ...types.NamespacedName)
	// Changes delivers the keys of held objects that appeared, changed or went away.
	Changes() <-chan types.NamespacedName
}

// Ports are what the daemon works with besides the bus.
type Ports struct {
	ConfigMaps Watched[corev1.ConfigMap]
	Secrets    Watched[corev1.Secret]
	Tokens     plugin.Tokens
	Claims     persistent.Objects
	// CSI are the volumes of CSI drivers, and Drivers those that are registered. Both may be nil.
	CSI     *csi.Volumes
	Drivers *driver.Drivers
	// Labels may be nil.
	Labels *selinux.Book
	// Kernel is the running one's release, see plugin.Objects.
	Kernel string
	// State writes volume.state; a process has one such writer.
	State  *bus.Writer[topic.PodVolumes]
	Events daemon.EventRecorder
	Health daemon.HealthReporter
	// Pulse may be nil.
	Pulse *daemon.Pulse
	// Metrics is where the daemon's metrics are registered, once for a process.
	Metrics metrics
}

// Service is the volume daemon.
type Service struct {
	root  layout
	conn  *bus.Conn
	ports Ports
	log   *slog.Logger
	kinds plugin.List
	now   func() time.Time

	// All below belongs to the goroutine of Run.
	pods map[string]*pod
	// changed are the pods to look at, agenda those at which time makes something due.
	changed     map[*pod]bool
	agenda      agenda.Agenda[*pod]
	hung        int // workers that have not come back
	users       map[object]map[*volume]*pod
	sources     topic.Sources
	listed      map[string]bool // the pods of sources
	synced      synced
	allocatable corev1.ResourceList
	nodeLabels  map[string]string
	// orphans is the search for what earlier runs have left, disks the freeing of disks that no pod has.
	orphans, disks once
	// before is what an earlier run has said of the volumes of each pod.
	before map[string]topic.PodVolumes

	workers sync.WaitGroup
	// inbox takes what workers and calls have to tell the goroutine of Run. It isn't a daemon/loop: workers report until
	// ended is closed, which is later than the end of Run's context, and those that hang in the kernel are given up.
	inbox chan func()
	ended chan struct{}
}

// New makes the daemon for the pods below rootDir. It starts nothing.
func New(rootDir string, conn *bus.Conn, ports Ports, log *slog.Logger) *Service {
	kinds := plugin.All(plugin.Objects{
		ConfigMaps: ports.ConfigMaps, Secrets: ports.Secrets, Tokens: ports.Tokens, Kernel: ports.Kernel,
	})
	if ports.CSI != nil {
		kinds = slices.Concat(kinds, persistent.Kinds(rootDir, ports.Claims, ports.CSI, ports.CSI.Others),
			ports.CSI.Kinds())
	} else {
		kinds = slices.Concat(kinds, persistent.Kinds(rootDir, ports.Claims, nil, nil))
	}
	return &Service{
		root: layout(rootDir), conn: conn, ports: ports, log: log, now: time.Now, kinds: kinds,
		pods: map[string]*pod{}, changed: map[*pod]bool{}, users: map[object]map[*volume]*pod{},
		inbox: make(chan func()), ended: make(chan struct{}),
	}
}

// synced are the topics whose retained messages have all been delivered.
type synced struct{ pods, sources, node bool }

// all reports whether decisions can be made: a volume whose limits come from the node must not fail for a
// message that is on its way.
func (s synced) all() bool { return s.pods && s.sources && s.node }

// Run does the daemon's work until ctx ends. Mounts stay as they are. A Service runs once.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in, err := s.subscribe(ctx)
	if err != nil {
		return err
	}
	s.ports.Metrics.reset()
	serving := make(chan error, 2)
	go func() { serving <- topic.VolumeSubPath.Serve(ctx, s.conn, s.subPath) }()
	go func() { serving <- topic.VolumeUsage.Serve(ctx, s.conn, s.usage) }()
	err = s.loop(ctx, in, serving)
	cancel(errors.Join(errors.New("the volume daemon stops"), err))
	close(s.ended)
	s.waitForWorkers()
	return err
}

// inputs are the topics that Run reads.
type inputs struct {
	pods    <-chan bus.Change[topic.Pod]
	sources <-chan bus.Change[topic.Sources]
	node    <-chan bus.Change[corev1.Node]
}

func (s *Service) subscribe(ctx context.Context) (in inputs, err error) {
	reading, cancel := context.WithTimeoutCause(ctx, readTimeout, errors.New("the bus has not answered"))
	defer cancel()
	if s.before, err = topic.VolumeState.Read(reading, s.conn); err != nil {
		return in, err
	}
	if in.pods, err = topic.PodUpdate.Watch(ctx, s.conn); err != nil {
		return in, err
	}
	if in.sources, err = topic.PodSources.Watch(ctx, s.conn); err != nil {
		return in, err
	}
	in.node, err = topic.NodeObject.Watch(ctx, s.conn)
	return in, err
}

// loop owns the state. A message only changes what is known, and which pods have changed; advance then decides for
// those.
func (s *Service) loop(ctx context.Context, in inputs, serving <-chan error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	s.ports.Pulse.Of(ctx, s.inbox)
	for {
		select {
		case <-ctx.Done():
			return s.finishServing(serving)
		case err := <-serving:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case c := <-in.pods:
			s.podUpdate(c)
		case c := <-in.sources:
			s.sourcesUpdate(c)
		case c := <-in.node:
			s.nodeUpdate(c)
		case key := <-s.ports.ConfigMaps.Changes():
			s.objectChanged(object{false, key})
		case key := <-s.ports.Secrets.Changes():
			s.objectChanged(object{true, key})
		case <-s.ports.Drivers.Changes():
			retryFailed(s.pods, s.changed, false)
		case tell := <-s.inbox:
			tell()
		case <-timer.C:
		}
		if ctx.Err() != nil || !s.synced.all() {
			continue
		}
		s.advance(ctx)
		s.reportHealth()
		s.rest(timer)
	}
}

// finishServing answers the calls that have come by now, which the end of serving waits for.
func (s *Service) finishServing(serving <-chan error) error {
	for {
		select {
		case err := <-serving:
			return err
		case tell := <-s.inbox:
			tell()
		}
	}
}

// tell has f run by the goroutine of Run; it reports whether that still runs.
func (s *Service) tell(f func()) bool {
	select {
	case s.inbox <- f:
		return true
	case <-s.ended:
		return false
	}
}

// rest sets the timer to the next moment at which something is due.
func (s *Service) rest(timer *time.Timer) {
	now := s.now()
	next := s.orphans.wakeAt(now)
	for _, at := range []time.Time{s.disks.wakeAt(now), s.agenda.Next()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(next.Sub(now))
}

// waitForWorkers waits for the workers, and gives up on those that hang.
func (s *Service) waitForWorkers() {
	idle := make(chan struct{})
	go func() {
		s.workers.Wait()
		close(idle)
	}()
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
		for _, p := range s.pods {
			for _, v := range p.volumes {
				if v.op != opNone {
					s.log.Error("the daemon stops while a volume's worker hangs in the kernel", "namespace", p.ref.Namespace,
						"pod", p.ref.Name, "uid", p.ref.UID, "volume", v.spec.Name, "operation", v.op)
				}
			}
		}
	}
}
