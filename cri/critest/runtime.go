package critest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri"
)

// Hook is called before the fake answers a call. It may wait (ctx is the call's), and an error, such as one of package
// grpc/status, becomes the answer.
type Hook func(ctx context.Context, req any) error

// Runtime is a fake container runtime. Its methods may be called from several goroutines.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	endpoint  string
	memory    bool
	events    bool
	eventsOff bool
	logs      bool

	mu         sync.Mutex
	server     *grpc.Server
	listener   net.Listener
	serving    sync.WaitGroup
	hooks      map[string]Hook
	calls      map[string]int
	nextID     int
	names      map[string]string // reserved name to ID
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*runtimeapi.Image
	refs       map[string]*runtimeapi.Image // by ID, tag and digest
	streams    map[chan *runtimeapi.ContainerEventResponse]struct{}
	conditions []*runtimeapi.RuntimeCondition
	handlers   []*runtimeapi.RuntimeHandler
}

// Option changes how a fake runtime starts.
type Option func(*Runtime)

// WithoutEvents makes a runtime without an event stream, as containerd 1.6.
func WithoutEvents() Option { return func(r *Runtime) { r.events = false } }

// WithEventsOff makes a runtime that ends each event stream at once and regularly, as CRI-O without enable_pod_events.
func WithEventsOff() Option { return func(r *Runtime) { r.eventsOff = true } }

// WithLogs makes the runtime create each container's log file, empty, when the container starts.
func WithLogs() Option { return func(r *Runtime) { r.logs = true } }

// InMemory makes the runtime listen in memory, for tests in a synctest bubble: it is reached by Client only.
func InMemory() Option { return func(r *Runtime) { r.memory = true } }

func newRuntime(options []Option) *Runtime {
	r := &Runtime{
		events: true, endpoint: "unix:///in-memory/cri.sock",
		hooks: map[string]Hook{}, calls: map[string]int{}, names: map[string]string{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		images: map[string]*runtimeapi.Image{}, refs: map[string]*runtimeapi.Image{},
		streams: map[chan *runtimeapi.ContainerEventResponse]struct{}{},
		conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		},
		handlers: []*runtimeapi.RuntimeHandler{{}, {Name: "runc"}},
	}
	for _, option := range options {
		option(r)
	}
	return r
}

// Listen runs a fake runtime at a unix socket, until Down. It is for a process of its own, which a crew's
// executables talk to; a socket that an earlier one left is replaced.
func Listen(socket string, options ...Option) (*Runtime, error) {
	r := newRuntime(options)
	r.endpoint, r.memory = "unix://"+socket, false
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace the fake runtime's socket: %w", err)
	}
	if err := r.listen(); err != nil {
		return nil, err
	}
	return r, nil
}

// Start runs a fake runtime until the test ends.
func Start(t testing.TB, options ...Option) *Runtime {
	t.Helper()
	r := newRuntime(options)
	if !r.memory {
		dir, err := os.MkdirTemp("", "critest") //nolint:usetesting // a test's name can make t.TempDir longer than a socket's path may be
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		r.endpoint = "unix://" + filepath.Join(dir, "cri.sock")
	}
	r.Up(t)
	t.Cleanup(r.Down)
	return r
}

// Endpoint is what to give to cri.Dial.
func (r *Runtime) Endpoint() string { return r.endpoint }

// Client is a client of the runtime, closed when the test ends. A timeout of zero means a minute.
func (r *Runtime) Client(t testing.TB, timeout time.Duration) *cri.Client {
	t.Helper()
	options := cri.Options{Timeout: cmp.Or(timeout, time.Minute)}
	if r.memory {
		options.Dialer = r.dial
	}
	client, err := cri.Dial(r.endpoint, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (r *Runtime) dial(ctx context.Context, _ string) (net.Conn, error) {
	r.mu.Lock()
	listener, ok := r.listener.(*bufconn.Listener)
	r.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("the fake runtime is down")
	}
	return listener.DialContext(ctx)
}

// Up begins to listen (again).
func (r *Runtime) Up(t testing.TB) {
	t.Helper()
	if err := r.listen(); err != nil {
		t.Fatal(err)
	}
}

func (r *Runtime) listen() error {
	var listener net.Listener
	if r.memory {
		listener = bufconn.Listen(1 << 20)
	} else {
		var err error
		if listener, err = net.Listen("unix", r.endpoint[len("unix://"):]); err != nil {
			return fmt.Errorf("listen as a fake runtime: %w", err)
		}
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(r.intercept), grpc.StreamInterceptor(r.interceptStream),
		grpc.MaxRecvMsgSize(16<<20))
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	r.mu.Lock()
	r.server, r.listener = server, listener
	r.mu.Unlock()
	r.serving.Go(func() { _ = server.Serve(listener) })
	return nil
}

// Wait returns when the runtime doesn't listen any more.
func (r *Runtime) Wait() { r.serving.Wait() }

// Down closes the socket and every connection, as when the runtime's process dies. Sandboxes and containers live on.
func (r *Runtime) Down() {
	r.mu.Lock()
	server := r.server
	r.server, r.listener = nil, nil
	r.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	r.serving.Wait()
}

// On sets the hook of a call, such as "RunPodSandbox"; nil removes it.
func (r *Runtime) On(call string, hook Hook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks[call] = hook
}

// Calls is how often a call was made.
func (r *Runtime) Calls(call string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[call]
}

// SetCondition sets one of the conditions that Status reports.
func (r *Runtime) SetCondition(condition *runtimeapi.RuntimeCondition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.conditions {
		if r.conditions[i].Type == condition.Type {
			r.conditions[i] = condition
			return
		}
	}
	r.conditions = append(r.conditions, condition)
}

// Hang is a hook that waits until the caller gives up.
func Hang(ctx context.Context, _ any) error {
	<-ctx.Done()
	return ctx.Err()
}

// enter counts the call and runs its hook.
func (r *Runtime) enter(ctx context.Context, method string, req any) error {
	call := path.Base(method)
	r.mu.Lock()
	r.calls[call]++
	hook := r.hooks[call]
	r.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx, req)
}

func (r *Runtime) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (any, error) {
	if err := r.enter(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (r *Runtime) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	if err := r.enter(stream.Context(), info.FullMethod, nil); err != nil {
		return err
	}
	return handler(srv, stream)
}

// id makes an ID as long as containerd's.
func (r *Runtime) id() string {
	r.nextID++
	return fmt.Sprintf("%064x", r.nextID)
}

// reserve takes a name for id, or answers as containerd does.
func (r *Runtime) reserve(kind, name, id string) error {
	if holder, taken := r.names[name]; taken {
		return fmt.Errorf("failed to reserve %s name %q: name %q is reserved for %q", kind, name, name, holder)
	}
	r.names[name] = id
	return nil
}

// release gives back the name that id holds.
func (r *Runtime) release(name, id string) {
	if r.names[name] == id {
		delete(r.names, name)
	}
}
