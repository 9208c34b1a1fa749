// Package hollow is the least that a node agent can do: the bare CRI calls of package baseline, and the requests to the
// API server without which a pod is neither started nor seen to run or to be gone. What it takes is the baseline for an
// agent whose control plane shares its machine's cores, as the benchmark's does.
//
// Reads: the pods bound to the node. Writes: one token, one status and one final delete for each. Owns: nothing on
// disk, and no volume: the token is asked for and thrown away.
//
// Guarantees: starts and stops go in the order in which they were asked for, so many at a time.
package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"kubelot.dev/test/bench/baseline"
)

// room is more than the pods that a benchmark has at once.
const room = 10_000

// Agent is the hollow agent of one node.
type Agent struct {
	Client   kubernetes.Interface
	Runtime  *baseline.Client
	Node     string
	Parallel int

	mu   sync.Mutex
	pods map[types.UID]*entry
}

// entry is a pod's runtime side; its lock is held while it starts or stops.
type entry struct {
	sync.Mutex
	running, stopping bool
	baseline.Pod
}

// Run serves the node until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	a.pods = map[types.UID]*entry{}
	// Pods of a node that isn't there are collected as garbage.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}
	if _, err := a.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", a.Node, err)
	}
	work := make(chan *corev1.Pod, room)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer close(work)
	for range a.Parallel {
		workers.Go(func() {
			for pod := range work {
				if err := a.sync(context.WithoutCancel(ctx), pod); err != nil {
					slog.Error("hollow agent", "pod", pod.Name, "error", err)
				}
			}
		})
	}
	for ctx.Err() == nil {
		err := a.follow(ctx, func(pod *corev1.Pod) {
			if a.news(pod) {
				work <- pod
			}
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("follow the pods of node %s: %w", a.Node, err)
		}
	}
	return nil
}

// follow tells of the node's pods that there are, and then of each change, until ctx ends or the API server has
// forgotten where it was. A watch that breaks, as they do on a busy machine, is resumed.
func (a *Agent) follow(ctx context.Context, told func(*corev1.Pod)) error {
	pods, mine := a.Client.CoreV1().Pods(""), "spec.nodeName="+a.Node
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: mine})
	if err != nil {
		return err
	}
	for i := range list.Items {
		told(&list.Items[i])
	}
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			return pods.Watch(ctx, o)
		},
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			told(pod)
		}
	}
	return nil
}

// news reports whether the pod is to be started or stopped, once for each.
func (a *Agent) news(pod *corev1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.pods[pod.UID]
	switch {
	case e == nil:
		a.pods[pod.UID] = &entry{}
		return pod.DeletionTimestamp == nil
	case pod.DeletionTimestamp != nil && !e.stopping:
		e.stopping = true
		return true
	}
	return false
}

func (a *Agent) sync(ctx context.Context, pod *corev1.Pod) error {
	a.mu.Lock()
	e := a.pods[pod.UID]
	a.mu.Unlock()
	e.Lock()
	defer e.Unlock()
	if pod.DeletionTimestamp != nil {
		return a.stop(ctx, pod, e)
	}
	return a.start(ctx, pod, e)
}

func (a *Agent) start(ctx context.Context, pod *corev1.Pod, e *entry) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if _, err := a.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, "default", request,
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("ask for a token: %w", err)
	}
	var err error
	if e.Pod, err = a.Runtime.Start(ctx, pod.Namespace+"-"+pod.Name); err != nil {
		return err
	}
	e.running = true
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   running(pod, e.Container()),
	})
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	_, err = a.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// running is the status of a pod that is Ready.
func running(pod *corev1.Pod, containerID string) corev1.PodStatus {
	now, yes := metav1.Now(), true
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, HostIP: "127.0.0.1", PodIP: "127.0.0.1",
		PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}, HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized,
		corev1.PodReady, corev1.ContainersReady,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: now,
		})
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + containerID,
			Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

func (a *Agent) stop(ctx context.Context, pod *corev1.Pod, e *entry) error {
	if e.running {
		if err := a.Runtime.Stop(ctx, e.Pod); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	options := metav1.NewPreconditionDeleteOptions(string(pod.UID))
	options.GracePeriodSeconds = new(int64)
	return a.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
}
