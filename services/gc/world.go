package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/services/gc/internal/container"
)

// settleTime is how long what should run must be known without a break before anything is deleted.
const settleTime = 10 * time.Second

// world is what the bus has said.
type world struct {
	pods    map[string]topic.Pod
	seen    map[string]topic.PodObservation
	sources topic.Sources
	// unread are the topics whose retained values have not all come yet.
	unread map[string]bool
	// settled is since when everything has been known; zero while it isn't.
	settled time.Time
}

func newWorld() world {
	return world{pods: map[string]topic.Pod{}, seen: map[string]topic.PodObservation{}, unread: map[string]bool{}}
}

// update is to be called after each change.
func (w *world) update(now time.Time) {
	switch {
	case len(w.unread) > 0 || !w.sources.Ready:
		w.settled = time.Time{}
	case w.settled.IsZero():
		w.settled = now
	}
}

// waiting says why nothing may be deleted; empty if it may.
func (w *world) waiting(now time.Time) string {
	switch {
	case len(w.unread) > 0:
		return "the bus has not delivered what should run and what runs"
	case !w.sources.Ready && len(w.sources.Waiting) > 0:
		return fmt.Sprintf("pod sources have not delivered: %v", w.sources.Waiting)
	case !w.sources.Ready:
		return "podsync has not said that all pod sources have delivered"
	case now.Sub(w.settled) < settleTime:
		return fmt.Sprintf("what should run has been known for %s only, and must be for %s", now.Sub(w.settled).Round(time.Second), settleTime)
	}
	return ""
}

// census is what runs and what should, read at one moment: the runtime first, so that what has come since is known too.
type census struct {
	// at is when the reading began. How old something is must be judged by it: what came later the census doesn't know.
	at         time.Time
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	lives      map[string]container.Life
	// pods are those that have not ended.
	pods []*corev1.Pod
}

func (c census) life(uid string) container.Life { return c.lives[uid] }

// known tells whether the pod exists or the runtime has something of it.
func (c census) known(uid string) bool {
	return c.lives[uid] != container.Gone ||
		slices.ContainsFunc(c.containers, func(o *runtimeapi.Container) bool { return labels.Pod(o.GetLabels()).UID == uid }) ||
		slices.ContainsFunc(c.sandboxes, func(o *runtimeapi.PodSandbox) bool { return labels.Pod(o.GetLabels()).UID == uid })
}

// take reads a census. It is an error where the bus is away or podsync's state is missing. known are the pods of which the loop
// knows: what the bus has lost is not gone.
func take(ctx context.Context, conn *bus.Conn, runtime containers, known map[string]topic.Pod) (census, error) {
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	c := census{at: time.Now(), lives: map[string]container.Life{}}
	var err error
	if c.containers, err = runtime.ListContainers(ctx, nil); err != nil {
		return c, err
	}
	if c.sandboxes, err = runtime.ListPodSandbox(ctx, nil); err != nil {
		return c, err
	}
	pods, err := topic.PodUpdate.Read(ctx, conn)
	if err != nil {
		return c, err
	}
	sources, err := topic.PodSources.Read(ctx, conn)
	if err != nil {
		return c, err
	}
	if !sources[""].Ready {
		return c, errors.New("pod sources have not all delivered, so nobody knows what isn't wanted")
	}
	all := maps.Clone(known)
	maps.Copy(all, pods)
	for uid, p := range all {
		c.lives[uid] = container.Wanted
		if p.Lifecycle == topic.Terminated {
			c.lives[uid] = container.Ended
		}
	}
	c.pods = running(all)
	for _, uid := range sources[""].Pods {
		if c.lives[uid] == container.Gone {
			c.lives[uid] = container.Wanted
		}
	}
	return c, nil
}

// running are the specs of the pods that have not ended.
func running(pods map[string]topic.Pod) []*corev1.Pod {
	var specs []*corev1.Pod
	for _, p := range pods {
		if p.Lifecycle != topic.Terminated && p.Pod != nil {
			specs = append(specs, p.Pod)
		}
	}
	return specs
}

// logsInUse are the paths of the logs of all containers that the runtime has.
func logsInUse(seen map[string]topic.PodObservation) map[string]bool {
	inUse := map[string]bool{}
	for _, o := range seen {
		for i := range o.Containers {
			inUse[o.Containers[i].LogPath] = true
		}
	}
	return inUse
}

// aboutPod is a decision about a pod.
func aboutPod(deed topic.Deed, pod *corev1.Pod, reason string) topic.Decision {
	ref := topic.RefOf(pod)
	return topic.Decision{Deed: deed, Object: ref.Namespace + "/" + ref.Name, Pod: &ref, Reason: reason}
}
