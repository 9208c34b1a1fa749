package check

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kubelot.dev/cri/handler"
)

// runGRPC asks the server's health service (grpc.health.v1.Health/Check), without TLS.
func runGRPC(ctx context.Context, t Target, action *corev1.GRPCAction, timeout time.Duration) (Result, error) {
	address, err := t.Address("", intstr.FromInt32(action.Port))
	if err != nil {
		return Result{}, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent(handler.UserAgent("probe")),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer().DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return failure("error: failed to connect service at %q: %v", address, err), nil
	}
	// All that can be said of it is that it was closed already.
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := connected(ctx, conn); err != nil {
		return failure("timeout: failed to connect service %q within %v: %v", address, timeout, err), nil
	}
	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return failure("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			status.Convert(err).Message()), nil
	case status.Code(err) == codes.DeadlineExceeded:
		return failure("timeout: health rpc did not complete within %v", timeout), nil
	case err != nil:
		return failure("error: health rpc probe failed: %v", err), nil
	case answer.GetStatus() != health.HealthCheckResponse_SERVING:
		return failure("service unhealthy (responded with %q)", answer.GetStatus().String()), nil
	}
	return Result{Success: true, Output: "service healthy"}, nil
}

// connected waits until the connection is up.
func connected(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}
