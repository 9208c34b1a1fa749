package lease

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/kube"
)

const (
	// renewFraction of the lease's duration passes between two renewals.
	renewFraction = 0.25
	// renewRetryFirst and renewRetryMax bound the delay after a failed renewal.
	renewRetryFirst = 200 * time.Millisecond
	renewRetryMax   = 7 * time.Second
	// reconnectAfter failures in a row the connections to the API server are reopened: a load balancer may
	// have dropped them without a word. Each takes ten seconds to be noticed, and after forty the node counts as lost.
	reconnectAfter = 2
)

// leases is what the renewer needs of the API server.
type leases interface {
	GetLease(ctx context.Context, name string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	Reconnect()
}

// renewer keeps the node's lease alive. It depends on nothing but the API server.
type renewer struct {
	api      leases
	node     string
	duration time.Duration
	log      *slog.Logger
	// lease is the last one that the API server answered with.
	lease    *coordinationv1.Lease
	failures int
	failing  time.Time
	health   daemon.HealthReporter
	// renewed is told of each success.
	renewed func(time.Time)
}

// run renews until ctx ends.
func (r *renewer) run(ctx context.Context) {
	interval := time.Duration(float64(r.duration) * renewFraction)
	for ctx.Err() == nil {
		began := time.Now()
		err := r.renew(ctx, interval)
		if ctx.Err() != nil {
			return
		}
		pause.For(ctx, r.delay(err, max(0, interval-time.Since(began))))
	}
}

// renew writes the lease once, creating it if the API server has none.
func (r *renewer) renew(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the API server did not answer within %s", timeout))
	defer cancel()
	if r.lease == nil {
		lease, err := r.api.GetLease(ctx, r.node)
		if apierrors.IsNotFound(err) {
			return r.create(ctx)
		}
		if err != nil {
			return fmt.Errorf("read the lease: %w", err)
		}
		r.lease = lease
	}
	next := r.lease.DeepCopy()
	r.fill(next)
	if len(next.OwnerReferences) == 0 {
		if node, err := r.api.GetNode(ctx, r.node); err == nil {
			own(next, node)
		}
	}
	lease, err := r.api.UpdateLease(ctx, next)
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			r.lease = nil
		}
		return fmt.Errorf("write the lease: %w", err)
	}
	r.lease = lease
	return nil
}

// create makes the lease. The Node owns it, so that it goes with the Node; it has to exist first.
func (r *renewer) create(ctx context.Context) error {
	node, err := r.api.GetNode(ctx, r.node)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("create the lease: %w", errNotRegistered)
	}
	if err != nil {
		return fmt.Errorf("create the lease: read its Node: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.node, Namespace: kube.NamespaceNodeLease}}
	r.fill(lease)
	own(lease, node)
	if r.lease, err = r.api.CreateLease(ctx, lease); err != nil {
		r.lease = nil
		return fmt.Errorf("create the lease: %w", err)
	}
	return nil
}

func (r *renewer) fill(lease *coordinationv1.Lease) {
	seconds := int32(r.duration / time.Second)
	now := metav1.NowMicro()
	if last := lease.Spec.RenewTime; last != nil && !now.After(last.Time) {
		// The time of day was set back. The node lifecycle controller takes only a later time for a sign of life.
		now = metav1.NewMicroTime(last.Add(time.Microsecond))
	}
	lease.Spec.HolderIdentity = &r.node
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
}

func own(lease *coordinationv1.Lease, node *corev1.Node) {
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}

// delay is how long to wait after a renewal: until the next one is due, or shorter after a failure.
func (r *renewer) delay(err error, due time.Duration) time.Duration {
	if err != nil {
		return r.failed(err)
	}
	r.succeeded()
	return due
}

// failed reports a failure and returns how long to wait.
func (r *renewer) failed(err error) time.Duration {
	if r.failures == 0 {
		r.failing = time.Now()
	}
	r.failures++
	delay := pause.After(r.failures, renewRetryFirst, renewRetryMax)
	switch {
	case isNotRegistered(err):
		r.log.Debug("the lease waits for the Node's registration")
		return min(delay, time.Second)
	case r.failures == 1 || r.failures%10 == 0:
		r.health.Set(topic.Degraded, "can't renew the node's lease: "+err.Error())
		r.log.Warn("can't renew the node's lease, retrying", "node", r.node, "error", err,
			"failures", r.failures)
	}
	if r.failures%reconnectAfter == 0 {
		r.api.Reconnect()
	}
	return delay
}

func (r *renewer) succeeded() {
	if r.failures > 0 {
		r.health.Set(topic.Healthy, "")
		r.log.Info("renewed the node's lease again", "node", r.node, "after", time.Since(r.failing).Round(time.Millisecond))
	}
	r.failures = 0
	r.renewed(time.Now())
}
