// Package restart finds the container that is to be restarted, and waits for its successor.
//
// # Reads
//
// pod.update, pleg.event.
//
// # Guarantees
//
//   - Pick is pure. It refuses whatever would not start again: a container that is stopped for good ends its pod.
//   - Await returns once a container of the same name runs that isn't the old one.
package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// defaultGrace is the API's grace period of pods that name none.
const defaultGrace = 30 * time.Second

// Target is a container that runs and may be restarted.
type Target struct {
	topic.Ref
	Container string
	ID        string
	// Grace is how long it has to end by itself.
	Grace time.Duration
}

// Pick finds the running container. name is the pod's, with or without its namespace, or its UID. container may be
// empty where the pod has only one.
func Pick(updates map[string]topic.Pod, observations map[string]topic.PodObservation, name, container string,
) (Target, error) {
	update, err := find(updates, name)
	if err != nil {
		return Target{}, err
	}
	pod := update.Pod
	t := Target{Ref: topic.RefOf(pod), Grace: defaultGrace}
	if update.Lifecycle != topic.Syncing {
		return t, fmt.Errorf("pod %s is ending: its containers don't start again", called(t.Ref))
	}
	if t.Container, err = choose(pod, container); err != nil {
		return t, err
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		t.Grace = time.Duration(*g) * time.Second
	}
	for _, c := range observations[t.UID].Containers { // the newest first
		if c.Name != t.Container {
			continue
		}
		if c.State == topic.ContainerRunning {
			t.ID = c.ID
			return t, nil
		}
		break
	}
	return t, fmt.Errorf("container %s of pod %s doesn't run: kubelot why %s says why", t.Container, called(t.Ref),
		called(t.Ref))
}

func called(ref topic.Ref) string { return ref.Namespace + "/" + ref.Name }

func find(updates map[string]topic.Pod, name string) (topic.Pod, error) {
	var found []topic.Pod
	for _, uid := range slices.Sorted(maps.Keys(updates)) {
		update := updates[uid]
		if update.Pod == nil {
			continue
		}
		ref := topic.RefOf(update.Pod)
		if name == ref.UID || name == called(ref) || !strings.Contains(name, "/") && name == ref.Name {
			found = append(found, update)
		}
	}
	// A pod may have the name of one that is ending.
	if live := slices.DeleteFunc(slices.Clone(found), func(p topic.Pod) bool {
		return p.Lifecycle != topic.Syncing
	}); len(live) > 0 {
		found = live
	}
	switch len(found) {
	case 0:
		return topic.Pod{}, fmt.Errorf("this node knows no pod %s: kubelot pods lists the node's", name)
	case 1:
		return found[0], nil
	}
	return topic.Pod{}, fmt.Errorf("%d pods are called %s, such as %s and %s: use namespace/name or a UID", len(found),
		name, called(topic.RefOf(found[0].Pod)), called(topic.RefOf(found[1].Pod)))
}

// choose checks that the container is one that starts again after each end.
func choose(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	if name == "" {
		if len(names) != 1 {
			return "", fmt.Errorf("name a container with --container: the pod has %s", strings.Join(names, ", "))
		}
		name = names[0]
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			if !podspec.IsSidecar(c) {
				return "", fmt.Errorf("%s is an init container: it ends, and isn't restarted", name)
			}
			return name, nil
		}
	}
	i := slices.Index(names, name)
	if i < 0 {
		return "", fmt.Errorf("the pod has no container %s, only: %s", name, strings.Join(names, ", "))
	}
	policy := string(pod.Spec.RestartPolicy)
	if own := pod.Spec.Containers[i].RestartPolicy; own != nil {
		policy = string(*own)
	}
	if policy != string(corev1.RestartPolicyAlways) && policy != "" {
		return "", fmt.Errorf("container %s has the restart policy %s: it might not start again", name, policy)
	}
	return name, nil
}

// Await waits until the container's successor runs, and returns its ID.
func Await(ctx context.Context, conn *bus.Conn, t Target) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := topic.PLEGEvent.Watch(ctx, conn, t.UID)
	if err != nil {
		return "", err
	}
	for change := range changes {
		for _, c := range change.Value.Containers {
			if c.Name == t.Container && c.ID != t.ID && c.State == topic.ContainerRunning {
				return c.ID, nil
			}
		}
	}
	cause := context.Cause(ctx)
	if cause == nil {
		cause = errors.New("the connection to the bus was closed")
	}
	return "", fmt.Errorf("container %s of pod %s has stopped and doesn't run again: %w: kubelot why %s says why",
		t.Container, called(t.Ref), cause, called(t.Ref))
}
