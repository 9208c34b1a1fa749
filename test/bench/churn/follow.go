package churn

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// state is what a pod is waited for.
type state int

const (
	isReady state = iota
	isEnded
	isGone
)

func (s state) String() string { return [...]string{"Ready", "ended", "gone"}[s] }

// follower knows how far each pod is. A pod that went while nobody looked shows as gone too.
type follower struct {
	mu   sync.Mutex
	pods map[string]*entry
}

// entry is a pod that is expected.
type entry struct {
	reached map[state]chan struct{} // closed when it is there
	last    *corev1.Pod
}

func newFollower() *follower { return &follower{pods: map[string]*entry{}} }

// start follows the pods of the namespace until ctx ends.
func (f *follower) start(ctx context.Context, client kubernetes.Interface, namespace string) error {
	pods := client.CoreV1().Pods(namespace)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
				error,
			) {
				return pods.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { f.look(object, false) },
			UpdateFunc: func(_, object any) { f.look(object, false) },
			DeleteFunc: func(object any) { f.look(object, true) },
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("list the pods of %s: %w", namespace, context.Cause(ctx))
	}
	return nil
}

func (f *follower) look(object any, gone bool) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.pods[pod.Name]
	if e == nil {
		return
	}
	e.last = pod
	if ready(pod) {
		e.reach(isReady)
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		e.reach(isEnded)
	}
	if gone {
		e.reach(isGone)
	}
}

func (e *entry) reach(s state) {
	select {
	case <-e.reached[s]:
	default:
		close(e.reached[s])
	}
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// expect is called before the pod is created.
func (f *follower) expect(name string) {
	e := &entry{reached: map[state]chan struct{}{}}
	for _, s := range []state{isReady, isEnded, isGone} {
		e.reached[s] = make(chan struct{})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[name] = e
}

func (f *follower) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, name)
}

// await returns when the pod is in the state. One that ended without ever being Ready isn't waited for.
func (f *follower) await(ctx context.Context, name string, wanted state) error {
	f.mu.Lock()
	e := f.pods[name]
	f.mu.Unlock()
	var ended chan struct{}
	if wanted == isReady {
		ended = e.reached[isEnded]
	}
	var cause error
	select {
	case <-e.reached[wanted]:
		return nil
	case <-ended:
		cause = fmt.Errorf("it ended")
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	status := "never seen"
	if e.last != nil {
		data, err := json.Marshal(e.last.Status)
		if err != nil {
			return err
		}
		status = string(data)
	}
	return fmt.Errorf("pod %s is not %s: %w; its status: %s", name, wanted, cause, status)
}
