// Package churn has pods come and go on a node, as fast as it goes: each is created, waited for, deleted, and waited
// for until its API object is gone.
//
// Reads and writes: the API server. Owns: the namespace it creates.
//
// Guarantees: pods are bound to the node when they are created, so that no scheduler has a part in it; no two pods
// of one run have the same name; a pod that doesn't get where it should is an error that shows its status.
package churn

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"golang.org/x/sync/errgroup"
)

const (
	// patience is for one pod among many, on a busy machine; a node that is slower has failed.
	patience = 10 * time.Minute
	// posts is how many requests are under way at a time; the API server takes some 2 ms for each.
	posts = 20
)

// Options say which pods come and go.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	Node      string
	// Image must be there or be pulled, have a shell if a kind of pod runs one, and heed SIGTERM.
	Image string
	// Kinds are taken in turns.
	Kinds []Kind
	// Parallel is how many pods there are at a time.
	Parallel int
}

// Churn is such a run.
type Churn struct {
	o    Options
	seen *follower
	next atomic.Int64
	gone atomic.Int64
	up   []string // by Up
}

// Start makes the namespace with what its pods need, and follows its pods until ctx ends.
func Start(ctx context.Context, o Options) (*Churn, error) {
	c := &Churn{o: o, seen: newFollower()}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	return c, c.seen.start(ctx, o.Client, o.Namespace)
}

// prepare makes the namespace and waits for its service account, without which no pod is admitted.
func (c *Churn) prepare(ctx context.Context) error {
	core := c.o.Client.CoreV1()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.o.Namespace}}
	if _, err := core.Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", c.o.Namespace, err)
	}
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data:       map[string]string{"color": "green"},
	}
	if _, err := core.ConfigMaps(c.o.Namespace).Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ConfigMap settings: %w", err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := core.ServiceAccounts(c.o.Namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("service account %s/default: %w", c.o.Namespace, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Gone is how many pods have come and gone.
func (c *Churn) Gone() int { return int(c.gone.Load()) }

// Run has n pods come and go, Parallel at a time. None is left when it returns without an error.
func (c *Churn) Run(ctx context.Context, n int) error {
	return c.run(ctx, func(begun int) bool { return begun < n })
}

// RunFor has pods come and go until that much time is over.
func (c *Churn) RunFor(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	return c.run(ctx, func(int) bool { return time.Now().Before(end) })
}

func (c *Churn) run(ctx context.Context, more func(begun int) bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.o.Parallel)
	for begun := 0; more(begun) && ctx.Err() == nil; begun++ {
		group.Go(func() error { return c.life(ctx) })
	}
	return group.Wait()
}

// life is one pod's.
func (c *Churn) life(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
	defer cancel()
	name, kind, err := c.create(ctx)
	if err != nil {
		return err
	}
	if err := c.seen.await(ctx, name, kind.done); err != nil {
		return err
	}
	return c.delete(ctx, name)
}

func (c *Churn) create(ctx context.Context) (string, Kind, error) {
	number := c.next.Add(1) - 1
	kind := c.o.Kinds[int(number)%len(c.o.Kinds)]
	name := fmt.Sprintf("%s-%d", kind.Name, number)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kind.spec(c.o.Image)}
	pod.Spec.NodeName = c.o.Node
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	// A process that hasn't set up its signal handling loses the SIGTERM, as process 1 of its namespace.
	*pod.Spec.TerminationGracePeriodSeconds = 1
	c.seen.expect(name)
	if _, err := c.o.Client.CoreV1().Pods(c.o.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return "", kind, fmt.Errorf("create pod %s: %w", name, err)
	}
	return name, kind, nil
}

// delete asks for the pod's end and waits until it is gone.
func (c *Churn) delete(ctx context.Context, name string) error {
	if err := c.ask(ctx, name); err != nil {
		return err
	}
	if err := c.seen.await(ctx, name, isGone); err != nil {
		return err
	}
	c.seen.forget(name)
	c.gone.Add(1)
	return nil
}

func (c *Churn) ask(ctx context.Context, name string) error {
	// A status patch at the same moment is a conflict to try again.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return c.o.Client.CoreV1().Pods(c.o.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return nil
}

// Up creates n pods at once and waits until all are as they should be.
func (c *Churn) Up(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
	defer cancel()
	names, kinds := make([]string, n), make([]Kind, n)
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(posts)
	for i := range n {
		group.Go(func() (err error) {
			names[i], kinds[i], err = c.create(asking)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.up = append(c.up, names...)
	for i := range n {
		if err := c.seen.await(ctx, names[i], kinds[i].done); err != nil {
			return err
		}
	}
	return nil
}

// Down deletes at once what Up has created, and waits until all of it is gone.
func (c *Churn) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
	defer cancel()
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(posts)
	for _, name := range c.up {
		group.Go(func() error { return c.ask(asking, name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, name := range c.up {
		if err := c.seen.await(ctx, name, isGone); err != nil {
			return err
		}
		c.seen.forget(name)
		c.gone.Add(1)
	}
	c.up = nil
	return nil
}
