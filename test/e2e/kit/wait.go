package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Watcher is a watch of the API server.
type Watcher = watch.Interface

// Follow follows a watch until ok accepts an object, and returns that one. A watch that begins without a
// resource version delivers what exists first.
func Follow[T runtime.Object](t testing.TB, what string, open func(context.Context) (Watcher, error),
	ok func(T) bool,
) T {
	t.Helper()
	found, err := follow(t.Context(), open, func(e watch.Event) bool {
		object, is := e.Object.(T)
		return is && e.Type != watch.Deleted && ok(object)
	})
	if err != nil {
		t.Fatalf("waited %v for %s: %v", Patience, what, err)
	}
	return found.(T)
}

// follow opens the watch again when the API server ends it.
func follow(ctx context.Context, open func(context.Context) (Watcher, error),
	ok func(watch.Event) bool,
) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	last := "nothing was seen"
	for {
		w, err := open(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("last seen: %s", last)
			}
			// The API server is away; some tests take it away.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for event := range w.ResultChan() {
			if ok(event) {
				w.Stop()
				return event.Object, nil
			}
			last = string(event.Type) + " " + brief(event.Object)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("last seen: %s", last)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// brief is what a failure shows of an object.
func brief(object runtime.Object) string {
	var shown any = object
	if pod, ok := object.(*corev1.Pod); ok {
		shown = pod.Status
	}
	data, err := json.Marshal(shown)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (n *Namespace) pods(name string) func(context.Context) (Watcher, error) {
	return func(ctx context.Context) (Watcher, error) {
		return n.bed.Client.CoreV1().Pods(n.Name).Watch(ctx, byName(name))
	}
}

// Wait waits until the pod is as wanted.
func (n *Namespace) Wait(pod, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	n.t.Helper()
	return Follow(n.t, fmt.Sprintf("pod %s: %s", pod, what), n.pods(pod), ok)
}

// Running waits until all containers of the pod run and it is Ready.
func (n *Namespace) Running(pod string) *corev1.Pod {
	n.t.Helper()
	return n.Wait(pod, "Ready", Ready)
}

// Ready reports whether the pod is Ready.
func Ready(p *corev1.Pod) bool { return Condition(p, corev1.PodReady) == corev1.ConditionTrue }

// Condition is the status of the pod's condition; empty if it has none.
func Condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// Restarted waits until the container of the pod runs after so many restarts.
func (n *Namespace) Restarted(pod *corev1.Pod, container string, restarts int32) *corev1.Pod {
	n.t.Helper()
	return n.Wait(pod.Name, fmt.Sprintf("restart %d of %s", restarts, container), func(p *corev1.Pod) bool {
		s := Status(p, container)
		return s != nil && s.RestartCount == restarts && s.State.Running != nil
	})
}

// Phase waits for the pod's phase.
func (n *Namespace) Phase(pod string, phase corev1.PodPhase) *corev1.Pod {
	n.t.Helper()
	return n.Wait(pod, "phase "+string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// Waiting waits until the container waits for the reason.
func (n *Namespace) Waiting(pod, container, reason string) corev1.ContainerStateWaiting {
	n.t.Helper()
	p := n.Wait(pod, container+" waiting: "+reason, func(p *corev1.Pod) bool {
		s := Status(p, container)
		return s != nil && s.State.Waiting != nil && s.State.Waiting.Reason == reason
	})
	return *Status(p, container).State.Waiting
}

// Status is the container's status, or nil.
func Status(p *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if s.Name == container {
			return &s
		}
	}
	return nil
}

// Gone waits until the pod's API object is gone, and then until the node has nothing of it any more.
func (n *Namespace) Gone(pod *corev1.Pod) {
	n.t.Helper()
	client := n.bed.Client.CoreV1().Pods(n.Name)
	_, err := follow(n.t.Context(), func(ctx context.Context) (Watcher, error) {
		list, err := client.List(ctx, byName(pod.Name))
		if err != nil {
			return nil, err
		}
		if len(list.Items) == 0 || list.Items[0].UID != pod.UID {
			gone := watch.NewFakeWithChanSize(1, false)
			gone.Delete(pod)
			return gone, nil
		}
		options := byName(pod.Name)
		options.ResourceVersion = list.ResourceVersion
		return client.Watch(ctx, options)
	}, func(e watch.Event) bool { return e.Type == watch.Deleted })
	if err != nil {
		n.t.Fatalf("waited %v for pod %s to go: %v", Patience, pod.Name, err)
	}
}

// Restarts is how often the container was started again; zero without a status of it, as of a pod that has just come.
func Restarts(p *corev1.Pod, container string) int32 {
	if s := Status(p, container); s != nil {
		return s.RestartCount
	}
	return 0
}

// Event waits for an Event on the pod with the reason and a message that contains the text.
func (n *Namespace) Event(pod, reason, text string) *corev1.Event {
	n.t.Helper()
	return Follow(n.t, fmt.Sprintf("Event %s on pod %s with %q", reason, pod, text),
		func(ctx context.Context) (Watcher, error) {
			return n.bed.Client.CoreV1().Events(n.Name).Watch(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod + ",reason=" + reason,
			})
		}, func(e *corev1.Event) bool { return strings.Contains(e.Message, text) })
}

// Eventually polls for what can't be watched.
func Eventually(t testing.TB, what string, ok func() error) {
	t.Helper()
	var err error
	// What is seldom true at once is looked at less and less often: many tests wait at the same time.
	pause := 20 * time.Millisecond
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(pause) {
		if err = ok(); err == nil {
			return
		}
		pause = min(pause*5/4, 250*time.Millisecond)
	}
	t.Fatalf("waited %v for %s: %v", Patience, what, err)
}
