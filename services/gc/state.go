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

// settleTime is how long it must have been known without a break which pods should run before anything is deleted.
const settleTime = 10 * time.Second

// leftAfter is how long pleg may take to say that nothing is left of a pod.
const leftAfter = 2 * time.Second

// state is what the bus has said.
type state struct {
	pods    map[string]topic.Pod
	seen    map[string]topic.PodObservation
	sources topic.Sources
	// unread are the topics whose retained values have not all come yet.
	unread map[string]bool
	// left are pods that are gone, with the time at which they went, until it is known whether they have left something.
	left map[string]time.Time
	// went is when the last pod has gone, or was released.
	went time.Time
	// settled is since when all topics have been read; zero while they aren't.
	settled time.Time
}

func newState() state {
	return state{
		pods: map[string]topic.Pod{}, seen: map[string]topic.PodObservation{}, unread: map[string]bool{},
		left: map[string]time.Time{},
	}
}

// update must be called after each change.
func (s *state) update(now time.Time) {
	switch {
	case len(s.unread) > 0 || !stated(s.sources):
		s.settled = time.Time{}
	case s.settled.IsZero():
		s.settled = now
	}
}

// stated reports whether podsync has said which sources have delivered.
func stated(s topic.Sources) bool { return s.Ready || len(s.Waiting) > 0 }

// leftovers reports whether the runtime still has something of a pod that has been gone for a moment. podsync removes
// what a pod has in the runtime before the pod is gone, so that an inventory of all pods for each that goes would be
// taken for nothing.
func (s *state) leftovers(now time.Time) (some bool) {
	for uid, at := range s.left {
		if now.Sub(at) < leftAfter {
			continue
		}
		delete(s.left, uid)
		_, there := s.seen[uid]
		some = some || there
	}
	return some
}

// waiting says why nothing may be deleted; empty if it may.
func (s *state) waiting(now time.Time) string {
	switch {
	case len(s.unread) > 0:
		return "the bus has not delivered what should run and what runs"
	case s.settled.IsZero():
		return "podsync has not said which pod sources have delivered"
	case now.Sub(s.settled) < settleTime:
		return fmt.Sprintf("what should run has been known for %s only, and must be for %s",
			now.Sub(s.settled).Round(time.Second), settleTime)
	}
	return ""
}

// inventory is what runs and what should run, read at one moment. The runtime is read first, so that the pods that have
// come since are known too.
type inventory struct {
	// at is when the reading began. The age of an object is judged by it, because the inventory has nothing that is newer.
	at         time.Time
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	lives      map[string]container.Life
	// pods are those that have not ended.
	pods []*corev1.Pod
	// partial is true while a source has not delivered: it may want any pod.
	partial bool
}

func (c inventory) life(uid string) container.Life {
	if life := c.lives[uid]; life != container.Gone || !c.partial {
		return life
	}
	return container.Wanted
}

// known reports whether the pod exists or the runtime has something of it.
func (c inventory) known(uid string) bool {
	return c.life(uid) != container.Gone ||
		slices.ContainsFunc(c.containers, func(o *runtimeapi.Container) bool {
			return labels.Pod(o.GetLabels()).UID == uid
		}) ||
		slices.ContainsFunc(c.sandboxes, func(o *runtimeapi.PodSandbox) bool { return labels.Pod(o.GetLabels()).UID == uid })
}

// takeInventory reads an inventory. It returns an error if the bus is away or podsync's state is missing. known are the
// pods that the loop knows: a pod that the bus has lost isn't gone.
func takeInventory(ctx context.Context, conn *bus.Conn, runtime containers,
	known map[string]topic.Pod,
) (inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	c := inventory{at: time.Now(), lives: map[string]container.Life{}}
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
	if c.partial = !sources[""].Ready; !stated(sources[""]) {
		return c, errors.New("podsync has not said which pod sources have delivered, so what is wanted isn't known")
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
func aboutPod(action topic.Action, pod *corev1.Pod, reason string) topic.Decision {
	ref := topic.RefOf(pod)
	return topic.Decision{Action: action, Object: ref.Namespace + "/" + ref.Name, Pod: &ref, Reason: reason}
}
