package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	// maxAnswer bounds what a plugin may say of itself.
	maxAnswer = 64 << 10
	// maxSocketPath is the kernel's limit of the path of a unix socket.
	maxSocketPath = 107
	tellLimit     = 5 * time.Second
)

// conversation is the connection to a plugin's registration service.
type conversation struct {
	conn   *grpc.ClientConn
	client registerapi.RegistrationClient
}

func converse(socket string) (*conversation, error) {
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d characters, unix sockets have at most %d: use a shorter name", len(socket),
			maxSocketPath)
	}
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return nil, err
	}
	return &conversation{conn, registerapi.NewRegistrationClient(conn)}, nil
}

// isDead reports whether nobody listens on the socket. The kernel says so at once.
func isDead(socket string) bool {
	conn, err := net.Dial("unix", socket) //nolint:noctx // it never waits
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (c *conversation) close() { _ = c.conn.Close() }

// info asks the plugin what it is.
func (c *conversation) info(ctx context.Context, limit time.Duration) (*registerapi.PluginInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not answered for %s", limit))
	defer cancel()
	info, err := c.client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the plugin what it is (GetInfo): %w", cause(ctx, err))
	}
	return info, nil
}

// tell tells the plugin that it is registered, or why not.
func (c *conversation) tell(ctx context.Context, refused error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tellLimit, fmt.Errorf("it has not answered for %s", tellLimit))
	defer cancel()
	status := &registerapi.RegistrationStatus{PluginRegistered: refused == nil}
	if refused != nil {
		status.Error = refused.Error()
	}
	if _, err := c.client.NotifyRegistrationStatus(ctx, status); err != nil {
		return fmt.Errorf("tell the plugin whether it is registered (NotifyRegistrationStatus): %w", cause(ctx, err))
	}
	return nil
}

// cause is why ctx ended, if that is why a call failed.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// refusal is an error that the plugin is told.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// shake does the whole handshake with the plugin of the entry. Names are given, and plugins published, by the owner of
// the book.
func (r *Registry) shake(ctx context.Context, e *entry, limit time.Duration) error {
	c, err := converse(e.path)
	if err != nil {
		return err
	}
	defer c.close()
	info, err := c.info(ctx, limit)
	if err != nil {
		return err
	}
	p, err := plugin(e.file, info)
	if err == nil {
		err = r.register(ctx, e, p)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return refusal{errors.Join(err, c.tell(ctx, err))}
	}
	return c.tell(ctx, nil)
}
