package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/sleep"
	"kubelot.dev/services/resource/internal/devices"
)

const (
	// maxPlugins bounds the resources that have a plugin, or whose plugins are registering.
	maxPlugins = 256
	// maxRequest bounds a registration.
	maxRequest = 64 << 10
	// maxCalls bounds the registrations at a time on one connection.
	maxCalls = 16
	// look is how often it is looked whether the service's socket is still there.
	look = 10 * time.Second
	// shakeLimit bounds the time in which a connection must become one of HTTP/2.
	shakeLimit = 10 * time.Second
)

var (
	errReplaced = errors.New("another instance of it has registered")
	errWithdrew = errors.New("its socket for the registration is gone")
	errStopping = errors.New("the registration of device plugins stops")
	errVanished = errors.New("the socket for the registration of device plugins was removed")
)

// Report is what the owner hears of a resource.
type Report struct {
	Resource string
	// Away is true where the plugin is gone. Otherwise Devices are all that it has, in the order of their IDs.
	Away    bool
	Devices []devices.Device
}

// Ports are what the server works with.
type Ports struct {
	// Report is called with news of a resource, from several goroutines, but for one resource from one at a time. It may
	// wait until ctx ends, which holds up only that resource.
	Report func(ctx context.Context, r Report)
	// Registering is called with why plugins can't register, and with nil when they can. It may wait until ctx ends.
	Registering func(ctx context.Context, err error)
	Metrics     *Metrics
	// Door is where plugins come in; nil for a socket that closes when the daemon sleeps.
	Door *sleep.Door
	Log  *slog.Logger
}

// Server has the device plugins of the node. Its methods may be called from several goroutines, also while Run doesn't
// run.
type Server struct {
	dir    string
	ports  Ports
	limits limits
	look   time.Duration

	// arrivals are plugins that can be spoken to; wake says that wanted has changed.
	arrivals chan *plugin
	wake     chan struct{}
	work     sync.WaitGroup
	// announcements are Run's.
	announcements map[string]*announcement

	mu      sync.Mutex
	plugins map[string]*plugin
	// options are those of the last plugin of each resource, which may be away.
	options map[string]Options
	// registering has the calls of Register that connect to a plugin, by its resource.
	registering map[string]*registering
	wanted      map[string]topic.PluginEndpoint
}

// New makes the server of the directory, which is the kubelet's device-plugins. It starts nothing.
func New(dir string, ports Ports) *Server {
	if told := ports.Report; ports.Metrics != nil {
		ports.Report = func(ctx context.Context, r Report) {
			ports.Metrics.reported(r)
			told(ctx, r)
		}
	}
	return &Server{
		dir: dir, ports: ports, limits: usual, look: look, arrivals: make(chan *plugin), wake: make(chan struct{}, 1),
		announcements: map[string]*announcement{}, plugins: map[string]*plugin{}, options: map[string]Options{},
		registering: map[string]*registering{}, wanted: map[string]topic.PluginEndpoint{},
	}
}

// Run has plugins register until ctx ends. The error says why they can't. It may be called again when it has returned.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { s.ports.Registering(ctx, err) }()
	listener, err := s.ports.Door.Open(func() (*net.UnixListener, error) { return s.listen(ctx) })
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(shakeLimit), grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(server, registration{server: s})
	served := make(chan error, 1)
	s.work.Go(func() { served <- server.Serve(listener) })
	s.ports.Registering(ctx, nil)
	err = s.own(ctx, served)
	s.stop()
	server.Stop()
	s.work.Wait()
	return err
}

func (s *Server) listen(ctx context.Context) (*net.UnixListener, error) {
	if err := prepare(s.dir); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", SocketOf(s.dir))
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return listener.(*net.UnixListener), nil
}

// SocketOf is the path of the socket at which plugins register.
func SocketOf(dir string) string { return filepath.Join(dir, socketName) }

// own takes plugins that come and go. It ends with an error where nobody can register any more: Run is to be called
// again, which makes the directory and the socket anew.
func (s *Server) own(ctx context.Context, served <-chan error) error {
	s.reconcile(ctx)
	look := time.NewTicker(s.look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("serve the registration of device plugins: %w", err)
		case p := <-s.arrivals:
			s.install(ctx, p)
		case <-s.wake:
			s.reconcile(ctx)
		case <-look.C:
			if _, err := os.Lstat(SocketOf(s.dir)); errors.Is(err, fs.ErrNotExist) {
				return errVanished
			}
		}
	}
}

// stop ends what Run has begun.
func (s *Server) stop() {
	for resource, a := range s.announcements {
		a.stop(errStopping)
		delete(s.announcements, resource)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.plugins {
		p.stop(errStopping)
	}
}

// install makes the plugin that of its resource, unless its announcement has been withdrawn meanwhile.
func (s *Server) install(ctx context.Context, p *plugin) {
	if p.from != nil && s.announcements[p.resource] != p.from {
		p.close()
		return
	}
	alive, stop := context.WithCancelCause(ctx)
	p.over, p.stop, p.why = alive.Done(), stop, func() error { return context.Cause(alive) }
	s.mu.Lock()
	old := s.plugins[p.resource]
	s.plugins[p.resource], s.options[p.resource] = p, p.options
	s.mu.Unlock()
	if old != nil {
		old.stop(errReplaced)
	}
	s.ports.Log.Info("device plugin registered", "resource", p.resource, "socket", p.socket)
	s.work.Go(func() {
		defer close(p.ended)
		if old != nil {
			<-old.ended
		}
		p.stop(s.watch(alive, p))
		p.close()
		s.remove(ctx, p)
	})
}

// remove reports that the plugin is gone, unless another has replaced it. It stays the resource's until that is
// reported, so that the next one waits for it.
func (s *Server) remove(ctx context.Context, p *plugin) {
	if errors.Is(p.why(), errReplaced) {
		return
	}
	if ctx.Err() == nil {
		s.ports.Log.Warn("device plugin is gone", "resource", p.resource, "socket", p.socket, "error", p.why())
		s.ports.Report(ctx, Report{Resource: p.resource, Away: true})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plugins[p.resource] == p {
		delete(s.plugins, p.resource)
	}
}

// Idle reports whether no plugin is registered, nor is being registered.
func (s *Server) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.plugins)+len(s.registering)+len(s.wanted) == 0
}
