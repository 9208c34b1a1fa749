// Package observe reads pods from the container runtime and describes them as a topic.PodObservation. It remembers
// nothing between two readings, except what the caller hands back.
//
// # Guarantees
//
//   - An observation is of the whole pod: every sandbox and every container with the pod's UID, newest first.
//   - Sandboxes and containers are inspected in parallel, each with its own deadline. One that can't be inspected is
//     reported with what the list (or the earlier observation) says, and Errors names it. The others are not affected.
//     Errors doesn't name what is over, such as a sandbox that isn't ready or a container with a successor: there, what
//     the list says is enough.
//   - Objects that disappear between listing and inspecting are left out, without an error.
//
// # Words
//
// pleg and podsync read the same pods and use the same words for what they know of them:
//
//	complete  a reading in which every object could be inspected
//	partial   a reading that isn't complete; Errors names what is missing
//	ahead     a reading that shows an object further on its way than another reading does
//	dirty     a pod that is to be read again
//	unseen    an effect on a pod that no reading shows yet
package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

const (
	// inspectTimeout bounds the inspection of one sandbox or container; it takes a millisecond otherwise.
	inspectTimeout = 10 * time.Second
	// podParallel and allParallel bound the inspections under way for one pod, and the pods read at once.
	podParallel, allParallel = 8, 8
)

// Reader is the part of cri.Client that observing takes.
type Reader interface {
	ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
}

// Listed is one pod as the lists of sandboxes and containers show it.
type Listed struct {
	topic.Ref
	// At and Uptime are when the listing began.
	At         time.Time
	Uptime     time.Duration
	Sandboxes  []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
}

// Pod observes one pod: two calls side by side for the lists, then one for each sandbox and container. A
// pod of which the runtime has nothing gives an empty observation, not an error; an error
// means that the lists couldn't be read.
func Pod(ctx context.Context, reader Reader, uid string) (topic.PodObservation, error) {
	return PodSince(ctx, reader, uid, nil)
}

// PodSince is Pod for a caller that has an earlier observation of the same runtime: what can't have changed since then
// (containers that had exited, sandboxes that were ready and are) isn't inspected again, and what can't be
// inspected now keeps what was known of it.
func PodSince(ctx context.Context, reader Reader, uid string,
	earlier *topic.PodObservation,
) (topic.PodObservation, error) {
	listed, err := list(ctx, reader, labels.Selector(uid))
	if err != nil {
		return topic.PodObservation{}, fmt.Errorf("observe pod %s: %w", uid, err)
	}
	pod, ok := listed.pods[uid]
	if !ok {
		pod = &Listed{Ref: topic.Ref{UID: uid}, At: listed.at, Uptime: listed.uptime}
	}
	return inspect(ctx, reader, *pod, earlier), nil
}

// All observes every pod that the runtime has.
func All(ctx context.Context, reader Reader) ([]topic.PodObservation, error) {
	pods, err := List(ctx, reader)
	if err != nil {
		return nil, err
	}
	observations := make([]topic.PodObservation, len(pods))
	var group errgroup.Group
	group.SetLimit(allParallel)
	for i, pod := range pods {
		group.Go(func() error {
			observations[i] = inspect(ctx, reader, pod, nil)
			return nil
		})
	}
	_ = group.Wait() // its functions have no errors
	return observations, nil
}

// List lists every pod that the runtime has, sorted by UID, without inspecting any.
func List(ctx context.Context, reader Reader) ([]Listed, error) {
	listed, err := list(ctx, reader, nil)
	if err != nil {
		return nil, fmt.Errorf("list the runtime's pods: %w", err)
	}
	pods := make([]Listed, 0, len(listed.pods))
	for _, pod := range listed.pods {
		pods = append(pods, *pod)
	}
	slices.SortFunc(pods, func(a, b Listed) int { return cmp.Compare(a.UID, b.UID) })
	return pods, nil
}
