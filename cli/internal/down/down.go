// Package down removes every pod of the node and what it left on the disk.
//
// # Reads
//
// The container runtime, /proc/self/mountinfo, the root directory's pods.
//
// # Writes
//
// The container runtime (stop, remove), mounts below <root-dir>/pods, the pods' cgroups, their directories and
// logs, the bus's store, which speaks of pods that are gone, and the mount of <root-dir> on itself.
//
// # Guarantees
//
//   - Only sandboxes that carry the kubelet's pod UID label are touched.
//   - No directory is deleted while something is still mounted below it.
//   - If a pod can't be removed, the others still are. All failures are reported together.
package down

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/words"
	"kubelot.dev/cri/labels"
)

// runtime is what of the CRI client is needed.
type runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Options say what is removed.
type Options struct {
	Runtime runtime
	// RootDir holds pods/<uid>; PodLogsDir <namespace>_<name>_<uid>.
	RootDir, PodLogsDir string
	// ContainerLogsDir holds the links into PodLogsDir.
	ContainerLogsDir string
	// Cgroups are the paths of the pods' cgroup tree below a cgroup mount, such as /kubepods.
	Cgroups []string
	// BusStore is the bus's directory.
	BusStore string
	// Grace is how long containers may take to end.
	Grace time.Duration
	Out   io.Writer
}

// parallel is how many pods are removed at a time; more only make the runtime queue.
const parallel = 8

// Run removes everything.
func Run(ctx context.Context, o Options) error {
	uids, err := removePods(ctx, o)
	if err != nil {
		// Directories of what still runs must stay.
		return err
	}
	return errors.Join(
		unmountBelow(filepath.Join(o.RootDir, "pods")),
		removeCgroups(ctx, o.Cgroups),
		removePodDirs(ctx, filepath.Join(o.RootDir, "pods"), o.Out),
		removeLogs(ctx, o.PodLogsDir, o.ContainerLogsDir, uids),
		removeTree(ctx, o.BusStore),
		freeRoot(o.RootDir, o.Out),
	)
}

// pod is one sandbox with its containers.
type pod struct {
	sandbox    *runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

func (p pod) name() string {
	ref := labels.Pod(p.sandbox.Labels)
	return ref.Namespace + "/" + ref.Name
}

// removePods stops and removes all sandboxes and returns the UIDs they had.
func removePods(ctx context.Context, o Options) (map[string]bool, error) {
	pods, err := listPods(ctx, o.Runtime)
	if err != nil {
		return nil, err
	}
	var (
		mu     sync.Mutex
		errs   []error
		uids   = map[string]bool{}
		work   sync.WaitGroup
		places = make(chan struct{}, parallel)
	)
	for _, p := range pods {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			err := p.remove(ctx, o.Runtime, o.Grace)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("pod %s: %w", p.name(), err))
				return
			}
			uids[p.sandbox.Labels[labels.PodUID]] = true
			fmt.Fprintf(o.Out, "removed pod %s\n", words.OneLine(p.name()))
		})
	}
	work.Wait()
	return uids, errors.Join(errs...)
}

func listPods(ctx context.Context, r runtime) ([]pod, error) {
	sandboxes, err := r.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := r.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	bySandbox := map[string][]*runtimeapi.Container{}
	for _, c := range containers {
		bySandbox[c.PodSandboxId] = append(bySandbox[c.PodSandboxId], c)
	}
	var pods []pod
	for _, s := range sandboxes {
		if s.Labels[labels.PodUID] != "" {
			pods = append(pods, pod{sandbox: s, containers: bySandbox[s.Id]})
		}
	}
	return pods, nil
}

// remove stops the running containers side by side and removes the sandbox, which as the CRI says,
// takes its containers along.
func (p pod) remove(ctx context.Context, r runtime, grace time.Duration) error {
	var work sync.WaitGroup
	for _, c := range p.containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			work.Go(func() {
				// StopPodSandbox ends whatever this doesn't, and reports it.
				_ = r.StopContainer(ctx, c.Id, grace)
			})
		}
	}
	work.Wait()
	if err := r.StopPodSandbox(ctx, p.sandbox.Id); err != nil {
		return err
	}
	return r.RemovePodSandbox(ctx, p.sandbox.Id)
}
