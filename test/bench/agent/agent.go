// Package agent measures a node agent as its users see it: a pod object is
// created until a watch shows it Ready, deleted until a watch shows it gone.
//
// Reads and writes: the API server; /proc and the run directory for what the agent takes. Owns: the
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sync/errgroup"

	"kubelot.dev/test/bench/measure"
)

const (
	patience = 5 * time.Minute // for a batch; an agent that is slower has failed
	posts    = 20              // requests at a time; the API server takes some 2 ms each
)

// Agent is the program under measurement.
type Agent interface {
	// PID of the agent, or of the supervisor of its processes.
	PID() int
	// Stop ends it and leaves its pods running; Launch runs it again.
	Stop()
	Launch(ctx context.Context) error
}

// Options say what is measured.
type Options struct {
	Node      string // of the agent, Ready; also names the namespace
	Client    kubernetes.Interface
	Runtime   runtimeapi.RuntimeServiceClient
	Agent     Agent // nil for the hollow agent, which has no process of its own
	RootDir   string
	RunDir    string // a tmpfs, whose content counts as the agent's memory; empty for an agent that has none
	Say       func(format string, args ...any)
	IdleFor   time.Duration // how long the CPU time of an idle agent is taken
	RestFor   time.Duration // how long an agent rests before its memory is read
	Brief     bool          // leave out what the quick form doesn't judge: CPU without probes, memory after the long rest
	PauseRef  string        // image that ends at once on SIGTERM
	ShellRef  string        // image with a shell
	ServerRef string        // image of the server that probes ask
	// DevicePlugins is the agent's directory of device plugins, State one for what CSI drivers need.
	DevicePlugins, State string
	// Attacher runs the external-attacher for the driver at the socket, until ctx ends. The channel is closed then.
	Attacher func(ctx context.Context, socket string) (ended <-chan struct{}, err error)
}

// Bench measures one agent.
type Bench struct {
	Options
	namespace string
	seen      *tracker
	stop      context.CancelFunc
}

// New makes the namespace of the measurement. Close ends what it started.
func New(ctx context.Context, opts Options) (*Bench, error) {
	b := &Bench{Options: opts, namespace: opts.Node}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	ctx, b.stop = context.WithCancel(ctx)
	var err error
	if b.seen, err = track(ctx, b.Client, b.namespace); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// Close ends the watch. Pods that a failed measurement left stay.
func (b *Bench) Close() { b.stop() }

// prepare makes the namespace and waits for its service account, without which
// no pod is admitted.
func (b *Bench) prepare(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
	if _, err := b.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", b.namespace, err)
	}
	return until(ctx, "there is the service account "+b.namespace+"/default", func() (bool, error) {
		_, err := b.Client.CoreV1().ServiceAccounts(b.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// until polls until done says so. Its error doesn't end the wait, but is told if it fails.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	const pause = 20 * time.Millisecond
	var last error
	err := wait.PollUntilContextTimeout(ctx, pause, patience, true, func(context.Context) (ok bool, _ error) {
		ok, last = done()
		return ok, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// Latency measures pods one at a time.
func (b *Bench) Latency(ctx context.Context, repeat int) (measure.Figures, error) {
	b.Say("%d pods one at a time", repeat)
	var created, deleted measure.Sample
	for i := range repeat {
		name := fmt.Sprintf("single-%d", i)
		begin := time.Now()
		if err := b.create(ctx, b.pod(name)); err != nil {
			return nil, err
		}
		ready, err := b.seen.await(ctx, name, isReady)
		if err != nil {
			return nil, err
		}
		created = append(created, ready.Sub(begin))
		if err := sleep(ctx, measure.Settle); err != nil {
			return nil, err
		}
		begin = time.Now()
		if err := b.delete(ctx, name); err != nil {
			return nil, err
		}
		gone, err := b.seen.await(ctx, name, isGone)
		if err != nil {
			return nil, err
		}
		deleted = append(deleted, gone.Sub(begin))
		// An agent may still tidy up when the object is gone. The next pod is to come to a node at rest.
		if err := sleep(ctx, measure.Settle); err != nil {
			return nil, err
		}
	}
	f := measure.Figures{}
	f.Time("latency.create", created, "p50", "p95")
	f.Time("latency.delete", deleted, "p50", "p95")
	return f, nil
}

// all asks for the same for every pod at once and returns when each was seen,
// counted from the first request.
func (b *Bench) all(
	ctx context.Context, names []string, ask func(context.Context, string) error, done state,
) (measure.Sample, error) {
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

// startAll creates n pods at once, which differ only in their names, and waits until all are Ready.
func (b *Bench) startAll(
	ctx context.Context, prefix string, n int, shape func(*corev1.Pod),
) ([]string, measure.Sample, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	times, err := b.all(ctx, names, func(ctx context.Context, name string) error {
		pod := b.pod(name)
		if shape != nil {
			shape(pod)
		}
		return b.create(ctx, pod)
	}, isReady)
	return names, times, err
}

// stopAll deletes the pods at once and waits until all are gone.
func (b *Bench) stopAll(ctx context.Context, names []string) (measure.Sample, error) {
	return b.all(ctx, names, b.delete, isGone)
}

// cpuOf is the CPU time that the agent takes while do runs; zero for the hollow agent.
func (b *Bench) cpuOf(do func() error) (time.Duration, error) {
	if b.Agent == nil {
		return 0, do()
	}
	before, err := measure.CPU(b.Agent.PID())
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := measure.CPU(b.Agent.PID())
	return after - before, err
}

// pod is a pod of one container that does nothing and ends at once.
func (b *Bench) pod(name string) *corev1.Pod {
	container := corev1.Container{Name: "main", Image: b.PauseRef, ImagePullPolicy: corev1.PullIfNotPresent}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: b.Node, Containers: []corev1.Container{container}},
	}
}

func (b *Bench) create(ctx context.Context, pod *corev1.Pod) error {
	if _, err := b.Client.CoreV1().Pods(b.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return nil
}

func (b *Bench) delete(ctx context.Context, name string) error {
	// A status patch at the same moment is a conflict to try again.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return b.Client.CoreV1().Pods(b.namespace).Delete(ctx, name, metav1.DeleteOptions{})
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
