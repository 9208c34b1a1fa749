// Package agent measures a node agent as its users see it: a pod object is
// created until a watch shows it Ready, deleted until a watch shows it gone.
//
// Reads and writes: the API server; /proc for the agent's usage. Owns: the
// namespace it creates.
//
// Guarantees: the same for every agent; pods are bound to the node when they
// are created, so that the scheduler isn't measured.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"golang.org/x/sync/errgroup"

	"kubelot.dev/test/bench/measure"
)

const (
	patience = 5 * time.Minute // for a batch; an agent that is slower has failed
	posts    = 20              // requests at a time; the API server takes some 2 ms each
)

// Options say what is measured.
type Options struct {
	Subject string // names the result
	Node    string
	Image   string // must be on the node; its process must end at once on SIGTERM
	PID     int    // of the agent, or of the supervisor of its processes
	Repeat  int    // single pods
	Pods    int    // in the batch
	Idle    time.Duration
	// ExecProbe is the period of an exec readiness probe of every pod, in whole seconds; zero for none. The image must
	// then have a shell.
	ExecProbe time.Duration
}

// bench is one run.
type bench struct {
	opts      Options
	client    kubernetes.Interface
	namespace string
	seen      *tracker
}

// Run measures the agent of a node that is Ready.
func Run(ctx context.Context, client kubernetes.Interface, opts Options) (result measure.Result, err error) {
	b := &bench{opts: opts, client: client, namespace: "bench-" + opts.Subject}
	if err := b.prepare(ctx); err != nil {
		return result, err
	}
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if b.seen, err = track(watchCtx, client, b.namespace); err != nil {
		return result, err
	}
	result.Subject = opts.Subject
	for i := range opts.Repeat {
		if err := b.single(ctx, fmt.Sprintf("single-%d", i), &result); err != nil {
			return result, err
		}
	}
	if err := b.batch(ctx, &result); err != nil {
		return result, err
	}
	return result, nil
}

// prepare makes the namespace and waits for its service account, without which
// no pod is admitted.
func (b *bench) prepare(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", b.namespace, err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := b.client.CoreV1().ServiceAccounts(b.namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("service account %s/default: %w", b.namespace, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *bench) single(ctx context.Context, name string, result *measure.Result) error {
	begin := time.Now()
	if err := b.create(ctx, name); err != nil {
		return err
	}
	ready, err := b.seen.await(ctx, name, isReady)
	if err != nil {
		return err
	}
	result.Create = append(result.Create, ready.Sub(begin))
	if err := sleep(ctx, measure.Settle); err != nil {
		return err
	}
	begin = time.Now()
	if err := b.delete(ctx, name); err != nil {
		return err
	}
	gone, err := b.seen.await(ctx, name, isGone)
	if err != nil {
		return err
	}
	result.Delete = append(result.Delete, gone.Sub(begin))
	return nil
}

func (b *bench) batch(ctx context.Context, result *measure.Result) error {
	usage := &measure.Usage{}
	names := make([]string, b.opts.Pods)
	for i := range names {
		names[i] = fmt.Sprintf("batch-%d", i)
	}
	var err error
	if usage.StartCPU, err = b.cpuOf(func() error {
		result.Starts.Times, err = b.all(ctx, names, b.create, isReady)
		return err
	}); err != nil {
		return err
	}
	if err := b.idle(ctx, usage); err != nil {
		return err
	}
	if usage.StopCPU, err = b.cpuOf(func() error {
		result.Stops.Times, err = b.all(ctx, names, b.delete, isGone)
		return err
	}); err != nil {
		return err
	}
	result.Usage = usage
	return nil
}

// all asks for the same for every pod at once and returns when each was seen,
// counted from the first request.
func (b *bench) all(ctx context.Context, names []string, ask func(context.Context, string) error, done state) (measure.Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
	defer cancel()
	begin := time.Now()
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(posts)
	for _, name := range names {
		group.Go(func() error { return ask(asking, name) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var times measure.Sample
	for _, name := range names {
		at, err := b.seen.await(ctx, name, done)
		if err != nil {
			return nil, err
		}
		times = append(times, at.Sub(begin))
	}
	return times, nil
}

// idle measures the agent with the batch running; the first seconds belong to
// the start.
func (b *bench) idle(ctx context.Context, usage *measure.Usage) error {
	if err := sleep(ctx, b.opts.Idle/3); err != nil {
		return err
	}
	begin := time.Now()
	used, err := b.cpuOf(func() error { return sleep(ctx, b.opts.Idle) })
	if err != nil {
		return err
	}
	if took := time.Since(begin); b.opts.Idle > 0 {
		usage.Idle = 1000 * used.Seconds() / took.Seconds()
	}
	usage.PSS, err = measure.PSS(b.opts.PID)
	return err
}

// cpuOf is the CPU time that the agent takes while do runs.
func (b *bench) cpuOf(do func() error) (time.Duration, error) {
	before, err := measure.CPU(b.opts.PID)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := measure.CPU(b.opts.PID)
	return after - before, err
}

func (b *bench) create(ctx context.Context, name string) error {
	container := corev1.Container{Name: "main", Image: b.opts.Image, ImagePullPolicy: corev1.PullIfNotPresent}
	if b.opts.ExecProbe > 0 {
		container.Command = []string{"sh", "-c", `trap "exit 0" TERM; while :; do sleep 3600 & wait; done`}
		container.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
			PeriodSeconds: int32(b.opts.ExecProbe / time.Second),
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: b.opts.Node, Containers: []corev1.Container{container}},
	}
	if _, err := b.client.CoreV1().Pods(b.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	return nil
}

func (b *bench) delete(ctx context.Context, name string) error {
	// A status patch at the same moment is a conflict to try again.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return b.client.CoreV1().Pods(b.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("interrupted"), context.Cause(ctx))
	}
}
