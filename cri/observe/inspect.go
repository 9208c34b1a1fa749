package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
)

// inspect reads the details of a listed pod. earlier may be nil; see PodSince.
func inspect(ctx context.Context, reader Reader, pod Listed, earlier *topic.PodObservation) topic.PodObservation {
	in := &inspection{
		reader: reader,
		known:  map[string]topic.Container{},
		ready:  map[string]topic.Sandbox{},
		newest: map[string]uint32{},
		seen: topic.PodObservation{
			Ref: pod.Ref, At: pod.At, Uptime: pod.Uptime, Sandboxes: []topic.Sandbox{}, Containers: []topic.Container{},
		},
	}
	if earlier != nil {
		for _, container := range earlier.Containers {
			in.known[container.ID] = container
		}
		for _, sandbox := range earlier.Sandboxes {
			if sandbox.Ready && (sandbox.HostNetwork || len(sandbox.IPs) > 0) {
				in.ready[sandbox.ID] = sandbox
			}
		}
	}
	for _, container := range pod.Containers {
		name, attempt := name(container.GetLabels(), container.GetMetadata()), container.GetMetadata().GetAttempt()
		in.newest[name] = max(in.newest[name], attempt)
	}
	var group errgroup.Group
	group.SetLimit(podParallel)
	for _, sandbox := range pod.Sandboxes {
		group.Go(func() error { in.sandbox(ctx, sandbox); return nil })
	}
	for _, container := range pod.Containers {
		group.Go(func() error { in.container(ctx, container); return nil })
	}
	_ = group.Wait() // its functions have no errors
	in.sort()
	return in.seen
}

// inspection is one call of Inspect under way.
type inspection struct {
	reader Reader
	// known are the containers of the earlier observation by ID.
	known map[string]topic.Container
	// ready are the complete, ready sandboxes of the earlier observation by ID.
	ready map[string]topic.Sandbox
	// newest are the last attempts of the containers by their names.
	newest map[string]uint32

	mu   sync.Mutex
	seen topic.PodObservation
}

func (in *inspection) sandbox(ctx context.Context, listed *runtimeapi.PodSandbox) {
	if known, ok := in.ready[listed.GetId()]; ok && listed.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		in.addSandbox(known, nil) // its addresses and namespaces stay until it ends
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	status, err := in.reader.PodSandboxStatus(ctx, listed.GetId())
	if cri.IsNotFound(err) {
		return
	}
	switch {
	case err == nil:
		in.addSandbox(sandboxFromStatus(status), nil)
	case listed.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		in.addSandbox(sandboxFromList(listed), nil) // nothing can be done with it but to remove it, for which that is enough
	default:
		in.addSandbox(sandboxFromList(listed), err)
	}
}

func (in *inspection) addSandbox(sandbox topic.Sandbox, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seen.Sandboxes = append(in.seen.Sandboxes, sandbox)
	if err != nil {
		in.seen.Errors = append(in.seen.Errors, fmt.Sprintf("sandbox %s: %v", sandbox.ID, err))
	}
}

func (in *inspection) container(ctx context.Context, listed *runtimeapi.Container) {
	known, isKnown := in.known[listed.GetId()]
	isKnown = isKnown && known.State == stateOf(listed.GetState())
	if isKnown && known.State == topic.ContainerExited && !known.FinishedAt.IsZero() {
		in.addContainer(known, nil) // an exit is final, once it is known
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	status, err := in.reader.ContainerStatus(ctx, listed.GetId())
	switch {
	case cri.IsNotFound(err):
		return
	case err == nil:
		in.addContainer(containerFromStatus(status, listed.GetPodSandboxId()), nil)
	case isKnown && known.State != topic.ContainerExited:
		in.addContainer(known, err)
	default:
		result := containerFromList(listed)
		if result.State == topic.ContainerExited && result.Attempt < in.newest[result.Name] {
			err = nil // nothing is decided by how a run ended that has had a successor
		}
		in.addContainer(result, err)
	}
}

func (in *inspection) addContainer(container topic.Container, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seen.Containers = append(in.seen.Containers, container)
	if err != nil {
		in.seen.Errors = append(in.seen.Errors, fmt.Sprintf("container %s (%s): %v", container.Name, container.ID, err))
	}
}

// sort puts the newest first: the last attempt, whatever the clock said when it was created. IDs break ties, so that
// equal observations are equal.
func (in *inspection) sort() {
	slices.SortFunc(in.seen.Sandboxes, func(a, b topic.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(in.seen.Containers, func(a, b topic.Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.Sort(in.seen.Errors)
}
