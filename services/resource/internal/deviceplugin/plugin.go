package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/daemon/oneline"
)

const (
	// maxAnswer bounds a message of a plugin, such as the list of its devices, maxError what of its errors is passed on.
	maxAnswer = 4 << 20
	maxError  = 1 << 10
	// redial bounds the pause between two attempts to connect: a plugin may register before it serves.
	redial = time.Second
	// settle is how long a call that has ended for no reason of its own waits to learn the reason.
	settle = 5 * time.Second
)

var (
	// ErrAway is the error of a call whose plugin isn't there, or has gone meanwhile.
	ErrAway = errors.New("the device plugin isn't there")
	// ErrSlow is the error of a call that the plugin hasn't answered in time.
	ErrSlow = errors.New("the device plugin does not answer")
)

// Options are what a plugin wants to be asked.
type Options struct {
	// PreStart is true where the plugin must be told of each start of a container.
	PreStart bool
	// Preferred is true where the plugin may be asked which devices it prefers.
	Preferred bool
}

// limits are how long a plugin may take.
type limits struct{ dial, options, preferred, allocate, preStart time.Duration }

// usual are the kubelet's where it has any. An allocation may reset a device or load it with a program.
var usual = limits{
	dial: 10 * time.Second, options: 10 * time.Second, preferred: 30 * time.Second, allocate: 2 * time.Minute,
	preStart: pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second,
}

// plugin is the connection to one instance of a plugin.
type plugin struct {
	resource, socket string
	conn             *grpc.ClientConn
	api              pluginapi.DevicePluginClient
	options          Options
	// from is the announcement of one that the registry has found; nil for one that has registered.
	from *announcement

	// over is closed when the plugin is gone or replaced, stop has it so; why is the reason. The owner of the plugins sets
	// them before others see the plugin.
	over <-chan struct{}
	stop context.CancelCauseFunc
	why  func() error
	// ended is closed when the last report of it was made.
	ended chan struct{}
}

// connect connects to the plugin and asks for its options.
func connect(ctx context.Context, resource, socket string, l limits) (*plugin, error) {
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("the path of the device plugin's socket has %d characters, unix sockets have at most %d: "+
			"use a shorter name", len(socket), maxSocketPath)
	}
	var refused atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err != nil {
				refused.Store(&err)
			}
			return c, err
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: redial / 10, Multiplier: 1.6, Jitter: 0.1, MaxDelay: redial},
			MinConnectTimeout: l.dial,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	p := &plugin{
		resource: resource, socket: socket, conn: conn, api: pluginapi.NewDevicePluginClient(conn),
		ended: make(chan struct{}),
	}
	if err := p.ready(ctx, l.dial); err != nil {
		if last := refused.Load(); last != nil {
			err = fmt.Errorf("%w: %w", err, *last)
		}
		p.close()
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	if err := p.ask(ctx, l.options); err != nil {
		p.close()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}
	return p, nil
}

func (p *plugin) close() { _ = p.conn.Close() }

// ready waits until the plugin listens.
func (p *plugin) ready(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("nobody answers at %s for %s", p.socket, limit))
	defer cancel()
	for {
		state := p.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Idle:
			p.conn.Connect()
		}
		if !p.conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}

// ask asks the plugin for its options.
func (p *plugin) ask(ctx context.Context, limit time.Duration) error {
	type options = *pluginapi.DevicePluginOptions
	answer, err := call(ctx, p, "GetDevicePluginOptions", limit, func(ctx context.Context) (options, error) {
		return p.api.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	})
	p.options = Options{
		PreStart: answer.GetPreStartRequired(), Preferred: answer.GetGetPreferredAllocationAvailable(),
	}
	return err
}

// call makes a call of the plugin.
func call[A any](ctx context.Context, p *plugin, method string, limit time.Duration,
	do func(context.Context) (A, error),
) (A, error) {
	slow := fmt.Errorf("%w: %s of %s has taken longer than %s", ErrSlow, method, p.resource, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, slow)
	defer cancel()
	answer, err := do(ctx)
	if err != nil {
		err = p.explain(ctx, err)
	}
	return answer, err
}

// explain says why a call failed: the caller doesn't want it any more, the plugin is slow, or gone, or has said so
// itself. What it says is in gRPC's words, on one line and of bounded length.
func (p *plugin) explain(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	s := status.Convert(err)
	code := s.Code()
	lost := p.over != nil && (code == codes.Unavailable || code == codes.Canceled)
	if lost || code == codes.DeadlineExceeded { // which the plugin may notice before ctx does
		timer := time.NewTimer(settle)
		defer timer.Stop()
		select {
		case <-p.over:
			return fmt.Errorf("%w: %s: %w", ErrAway, p.resource, p.why())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return status.Error(code, line(s.Message()))
}

// line makes a text of a plugin one of one line and bounded length.
func line(text string) string { return oneline.Of(text, maxError) }
