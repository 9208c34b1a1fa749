package check

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// runTCP opens a connection, and closes it.
func runTCP(ctx context.Context, t Target, action *corev1.TCPSocketAction, timeout time.Duration) (Result, error) {
	address, err := t.Address(action.Host, action.Port)
	if err != nil {
		return Result{}, err
	}
	d := dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return failure("%v", err), nil
	}
	// It was opened, which is all that counts.
	_ = conn.Close()
	return Result{Success: true}, nil
}
