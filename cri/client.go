package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxMessage is what the kubelet accepts as the size of one message.
	maxMessage = 16 << 20
	// reconnectDelay bounds the pause between connection attempts; one attempt on a unix socket is cheap.
	reconnectDelay = 100 * time.Millisecond
	// The event stream's window is wide, since containerd holds up all its calls while a subscriber's is full.
	streamWindow, connWindow = 4 << 20, 16 << 20
	// ioBuffer is what a connection reads at once of small answers; what is larger goes past the buffer.
	ioBuffer = 4 << 10
	// connectTimeout is how long a runtime that accepts the connection may keep silent.
	connectTimeout = 3 * time.Second
)

// Options are the parameters of Dial. All but Timeout are optional.
type Options struct {
	// ImageEndpoint is the socket of the image service where it isn't the runtime's.
	ImageEndpoint string
	// Timeout bounds a call (the configuration's runtimeRequestTimeout, which owns the default); it must be positive.
	// RunPodSandbox and StopPodSandbox get twice as long, StopContainer its grace period more.
	Timeout time.Duration
	// Metrics is where the kubelet_runtime_operations metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// Dialer opens a connection to a socket's path; nil means the unix socket there. Tests connect a fake runtime with it.
	Dialer func(ctx context.Context, path string) (net.Conn, error)
}

// Client calls one container runtime. Its methods may be called from several goroutines.
type Client struct {
	endpoint string
	timeout  time.Duration
	dialer   func(ctx context.Context, path string) (net.Conn, error)
	metrics  *metrics
	conns    []*grpc.ClientConn
	runtime  runtimeapi.RuntimeServiceClient
	images   imageService
}

// imageService is the image service with the endpoint that its errors name.
type imageService struct {
	runtimeapi.ImageServiceClient
	endpoint string
}

// Dial makes a client of the runtime at a socket such as unix:///run/containerd/containerd.sock
// (a bare path is understood). It doesn't connect: the first call does. The error says that the
// endpoint can't be one, that the timeout is missing, or that metrics clash.
func Dial(endpoint string, opts Options) (*Client, error) {
	if opts.Timeout <= 0 {
		return nil, fmt.Errorf("the timeout of calls to the container runtime is %s, want a positive one", opts.Timeout)
	}
	c := &Client{endpoint: endpoint, timeout: opts.Timeout, dialer: opts.Dialer}
	if c.dialer == nil {
		c.dialer = dialUnix
	}
	conn, err := c.connect(endpoint)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint: %w", err)
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	imageEndpoint := cmp.Or(opts.ImageEndpoint, endpoint)
	if imageEndpoint != endpoint {
		if conn, err = c.connect(imageEndpoint); err != nil {
			return nil, errors.Join(fmt.Errorf("image service endpoint: %w", err), c.Close())
		}
	}
	c.images = imageService{runtimeapi.NewImageServiceClient(conn), imageEndpoint}
	if c.metrics, err = newMetrics(opts.Metrics); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the connection; calls under way fail.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func (c *Client) connect(endpoint string) (*grpc.ClientConn, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	// The address is only a name to gRPC: the dialer knows the path. The authority is what
	// gRPC itself sends over unix sockets; a path isn't a valid one.
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return c.dialer(ctx, path)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: reconnectDelay / 4, Multiplier: 1.6, Jitter: 0.1, MaxDelay: reconnectDelay,
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithReadBufferSize(ioBuffer),
		grpc.WithSharedWriteBuffer(true),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", endpoint, err)
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// socketPath is the path of the unix socket that the endpoint names.
func socketPath(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case endpoint == "":
		return "", errors.New("none is given: set containerRuntimeEndpoint, such as unix:///run/containerd/containerd.sock")
	case !isURL && strings.Contains(endpoint, "://"):
		return "", fmt.Errorf("%q is not a unix socket: use unix:///path/to/the.sock", endpoint)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%q has no absolute path: use unix:///path/to/the.sock", endpoint)
	}
	return path, nil
}

// operation is one call as errors and metrics name it.
type operation struct {
	name   string // the CRI's name, such as RunPodSandbox
	metric string // the kubelet's operation_type
	object string // what it is about, for errors; may be empty
	// timeout bounds the call; negative means only ctx does.
	timeout  time.Duration
	endpoint string
}

// do makes one unary call with its deadline, metrics and error.
func do[Req, Resp any](ctx context.Context, c *Client, op operation,
	method func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req,
) (Resp, error) {
	op.timeout = cmp.Or(op.timeout, c.timeout)
	op.endpoint = cmp.Or(op.endpoint, c.endpoint)
	callCtx, cancel := ctx, context.CancelFunc(func() {})
	if op.timeout > 0 {
		callCtx, cancel = context.WithTimeout(ctx, op.timeout)
	}
	defer cancel()
	begin := time.Now()
	resp, err := method(callCtx, req)
	c.metrics.observe(op.metric, time.Since(begin), failed(ctx, err))
	if err != nil {
		var zero Resp
		return zero, newError(ctx, callCtx, op, err)
	}
	return resp, nil
}

// answered is the call's error, also where a success has no ID: a runtime that says nothing of a
// container hasn't said that it is gone.
func (c *Client) answered(op operation, err error, id string) error {
	if err != nil || id != "" {
		return err
	}
	return &Error{
		Call: op.name, Object: op.object, Endpoint: c.endpoint, Code: codes.Internal,
		err: errors.New("the runtime's answer is empty"),
	}
}
