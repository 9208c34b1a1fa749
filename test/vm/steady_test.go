package vm

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

// steady watches a workload for what must not happen while the agent is restarted: a container that is another one or
// was restarted, a Ready condition that changes, a pod that goes.
type steady struct {
	w      *workload
	before map[string]string // the containers of each pod, by its name

	mu     sync.Mutex
	seen   map[string]string // the version of each pod that the watch has come to
	faults []string
}

// watchSteady begins with the pods as they are, all Ready, and ends with the test. It watches what more is given too:
// the node, where it must stay Ready as well, which it doesn't while kubelot is stopped.
func watchSteady(t *testing.T, w *workload, more ...func(context.Context) (kit.Watcher, error)) *steady {
	t.Helper()
	s := &steady{w: w, before: map[string]string{}, seen: map[string]string{}}
	for _, p := range w.list(t) {
		if !kit.Ready(&p) {
			t.Fatalf("pod %s isn't Ready to begin with: %+v", p.Name, p.Status)
		}
		s.before[p.Name] = containers(&p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watches.Wait()
	})
	for _, open := range append(more, watchPods(w.Name, ""), watchPods("default", w.static)) {
		watches.Go(func() { s.follow(ctx, open) })
	}
	return s
}

// follow opens the watch again when the API server ends it; each begins with what there is.
func (s *steady) follow(ctx context.Context, open func(context.Context) (kit.Watcher, error)) {
	for ctx.Err() == nil {
		w, err := open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.fault(fmt.Sprintf("watch: %v", err))
			}
			return
		}
		for event := range w.ResultChan() {
			s.look(event)
		}
	}
}

func (s *steady) look(event watch.Event) {
	switch object := event.Object.(type) {
	case *corev1.Node:
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				s.fault(fmt.Sprintf("the node is Ready=%s: %s", c.Status, c.Message))
			}
		}
	case *corev1.Pod:
		before, known := s.before[object.Name]
		switch {
		case !known: // another test's
		case event.Type == watch.Deleted:
			s.fault("pod " + object.Name + " was deleted")
		case containers(object) != before:
			s.fault(fmt.Sprintf("pod %s has other containers:\n%s\nbefore:\n%s", object.Name, containers(object), before))
		case !kit.Ready(object):
			s.fault(fmt.Sprintf("pod %s isn't Ready: %+v", object.Name, object.Status.Conditions))
		}
		s.mu.Lock()
		s.seen[object.Name] = object.ResourceVersion
		s.mu.Unlock()
	}
}

func (s *steady) fault(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.faults, text) {
		s.faults = append(s.faults, text)
	}
}

// check waits until the watch has come to what is there now, and fails the test for what it has seen since the last
// check.
func (s *steady) check(t *testing.T) {
	t.Helper()
	eventually(t, "the watch to come to the present", func(context.Context) error {
		for _, p := range s.w.list(t) {
			s.mu.Lock()
			seen := s.seen[p.Name]
			s.mu.Unlock()
			if _, known := s.before[p.Name]; known && seen != p.ResourceVersion {
				return fmt.Errorf("pod %s has version %s, the watch has seen %s", p.Name, p.ResourceVersion, seen)
			}
		}
		return nil
	})
	s.mu.Lock()
	faults := s.faults
	s.faults = nil
	s.mu.Unlock()
	for _, fault := range faults {
		t.Error(fault)
	}
	if len(faults) > 0 {
		t.Log(node.Journal(60))
	}
}

// containers are a pod's containers with what changes when one is restarted.
func containers(p *corev1.Pod) string {
	var text string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		text += fmt.Sprintf("%s %s restarts=%d\n", s.Name, s.ContainerID, s.RestartCount)
	}
	return text
}

func watchPods(namespace, name string) func(context.Context) (kit.Watcher, error) {
	options := metav1.ListOptions{}
	if name != "" {
		options.FieldSelector = "metadata.name=" + name
	}
	return func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.CoreV1().Pods(namespace).Watch(ctx, options)
	}
}

func watchNode(ctx context.Context) (kit.Watcher, error) {
	return bed.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + guest.Name})
}

// detached is a context for what a test does when its own is done.
func detached(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }
