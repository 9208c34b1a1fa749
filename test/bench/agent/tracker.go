package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// state is what a pod is waited for.
type state int

const (
	isReady state = iota
	isGone
	isEnded // all its containers have ended
)

type milestone struct {
	pod   string
	state state
}

// tracker notes when the watch first showed a pod in a state.
type tracker struct {
	mu      sync.Mutex
	reached map[milestone]time.Time
	changed chan struct{} // closed and renewed with each milestone
	failure error
}

// track watches the namespace until ctx ends. A watch that breaks, as they do
// on a busy machine, is resumed where it was.
func track(ctx context.Context, client kubernetes.Interface, namespace string) (*tracker, error) {
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", namespace, err)
	}
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: pods.Watch,
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods of %s: %w", namespace, err)
	}
	t := &tracker{reached: map[milestone]time.Time{}, changed: make(chan struct{})}
	go t.follow(events)
	return t, nil
}

func (t *tracker) follow(events watch.Interface) {
	defer events.Stop()
	for event := range events.ResultChan() {
		now := time.Now()
		pod, ok := event.Object.(*corev1.Pod)
		switch {
		case !ok:
			t.fail(fmt.Errorf("watch of pods: %v", event.Object))
			return
		case event.Type == watch.Deleted:
			t.note(milestone{pod.Name, isGone}, now)
		case ready(pod):
			t.note(milestone{pod.Name, isReady}, now)
		case pod.Status.Phase == corev1.PodSucceeded:
			t.note(milestone{pod.Name, isEnded}, now)
		case pod.Status.Phase == corev1.PodFailed && pod.DeletionTimestamp == nil:
			t.fail(fmt.Errorf("pod %s failed: %s", pod.Name, why(pod)))
			return
		}
	}
	t.fail(fmt.Errorf("watch of pods ended"))
}

func (t *tracker) note(m milestone, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.reached[m]; known {
		return
	}
	t.reached[m] = at
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tracker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = err
	close(t.changed)
	t.changed = make(chan struct{})
}

// await returns when the pod was first seen in the state.
func (t *tracker) await(ctx context.Context, pod string, wanted state) (time.Time, error) {
	for {
		t.mu.Lock()
		at, ok := t.reached[milestone{pod, wanted}]
		changed, failure := t.changed, t.failure
		t.mu.Unlock()
		if ok {
			return at, nil
		}
		if failure != nil {
			return at, failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			what := map[state]string{isReady: "Ready", isGone: "gone", isEnded: "Succeeded"}[wanted]
			return at, fmt.Errorf("pod %s is not %s: %w", pod, what, context.Cause(ctx))
		}
	}
}

// why names the pod's reason, or how its container ended.
func why(pod *corev1.Pod) string {
	text := strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			text += fmt.Sprintf(" container %s ended with exit code %d (%s)", status.Name, ended.ExitCode, ended.Reason)
		}
	}
	return text
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
