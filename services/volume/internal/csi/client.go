package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// callLimit is how long a call may take: the kubelet's 2 minutes, less the time to say so before the worker is
	// stopped.
	callLimit = 2*time.Minute - 5*time.Second
	// askLimit bounds a question that changes nothing.
	askLimit = 30 * time.Second
	// maxAnswer bounds what a driver may answer, maxError what of its errors is passed on.
	maxAnswer = 4 << 20
	maxError  = 1 << 10
	// maxCapabilities bounds the list of what a driver can do.
	maxCapabilities = 256
	// reconnect bounds the pause before a driver that went away is dialed again.
	reconnect = time.Second
)

// client is the connection to one instance of a driver.
type client struct {
	conn *grpc.ClientConn
	node csiapi.NodeClient
	// can is asked for once, and kept: it doesn't change while the driver runs.
	asking chan struct{} // holds one token
	can    *capabilities
}

// dial makes the client of the driver at the endpoint. It doesn't connect: the first call does.
func dial(endpoint string) (*client, error) {
	conn, err := grpc.NewClient("passthrough:///csi",
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", endpoint)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnect / 10, Multiplier: 1.6, Jitter: 0.1, MaxDelay: reconnect},
			MinConnectTimeout: reconnect,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithUnaryInterceptor(plain),
	)
	if err != nil {
		return nil, fmt.Errorf("CSI driver at %q: %w", endpoint, err)
	}
	c := &client{conn: conn, node: csiapi.NewNodeClient(conn), asking: make(chan struct{}, 1)}
	c.asking <- struct{}{}
	return c, nil
}

func (c *client) close() { _ = c.conn.Close() }

// plain makes what a driver says of an error a text of one line and bounded length. The request, which may hold
// secrets, is in no error.
//
//nolint:revive // the many arguments are those of a grpc.UnaryClientInterceptor
func plain(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, options...)
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	if s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded {
		if why := context.Cause(ctx); why != nil && !errors.Is(why, ctx.Err()) {
			return status.Error(s.Code(), line(why.Error()))
		}
	}
	return status.Error(s.Code(), line(s.Message()))
}

func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "..."
	}
	return text
}

// capabilities asks what the driver can do.
func (c *client) capabilities(ctx context.Context) (*capabilities, error) {
	select {
	case <-c.asking:
		defer func() { c.asking <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.can != nil {
		return c.can, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, fmt.Errorf("the driver has not answered for %s", askLimit))
	defer cancel()
	answer, err := c.node.NodeGetCapabilities(ctx, &csiapi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask what the driver can do (NodeGetCapabilities): %w", err)
	}
	list := answer.GetCapabilities()
	if len(list) > maxCapabilities {
		return nil, fmt.Errorf("the driver names %d capabilities (NodeGetCapabilities)", len(list))
	}
	has := map[csiapi.NodeServiceCapability_RPC_Type]bool{}
	for _, entry := range list {
		has[entry.GetRpc().GetType()] = true
	}
	c.can = &capabilities{
		stage:                 has[csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME],
		mountGroup:            has[csiapi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP],
		singleNodeMultiWriter: has[csiapi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
	}
	return c.can, nil
}
