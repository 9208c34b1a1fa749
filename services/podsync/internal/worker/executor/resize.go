package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/admission/allocation"
	"kubelot.dev/services/podsync/internal/node/qos"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// Sizes are the runtime's calls about the resources of containers that run.
type Sizes interface {
	UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.LinuxContainerResources) error
	UpdatePodSandboxResources(ctx context.Context, id string,
		overhead, resources *runtimeapi.LinuxContainerResources) error
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
}

// Resizer changes the cgroup of a pod that runs.
type Resizer interface {
	// Loosen lifts the pod's CPU and memory limits, so that its containers' may be changed in any order.
	Loosen(pod *corev1.Pod) error
	// Update sets the pod's limits.
	Update(pod *corev1.Pod) error
	// MemoryLimit is what the pod's cgroup is held to, in bytes; 0 for no limit.
	MemoryLimit(pod *corev1.Pod) int64
	// MemoryUsage is what the containers of the pod use, in bytes, with what they share.
	MemoryUsage(pod *corev1.Pod) (uint64, error)
}

var errNoUsage = errors.New("the runtime doesn't report it")

// resizer changes the resources of pods that run.
type resizer struct {
	sizes   Sizes
	cgroups Cgroups
	node    Node
}

// resize gives the pod and its running containers the resources of the spec. The containers' limits hold while those of
// the pod are lifted.
func (rz *resizer) resize(ctx context.Context, s worker.Snapshot) error {
	if err := rz.fits(ctx, s); err != nil {
		return fmt.Errorf("cannot decrease memory limits: %w", err)
	}
	if err := rz.ask(ctx, s); err != nil {
		return fmt.Errorf("the runtime refuses the pod's new size: %w", err)
	}
	if err := rz.cgroups.Loosen(s.Pod); err != nil {
		return fmt.Errorf("loosen the pod's limits: %w", err)
	}
	var errs []error
	resizing(s, func(c *corev1.Container, cur *topic.Container, _ corev1.ResourceRequirements) {
		err := rz.sizes.UpdateContainerResources(ctx, cur.ID, criconfig.Resized(rz.node.CRI(), s.Pod, c, ownCPUs(s, c.Name)))
		if err = ignoreNotFound(err); err != nil {
			errs = append(errs, fmt.Errorf("container %s: %s", c.Name, words(err, cur.ID, c.Name)))
		}
	})
	if err := rz.cgroups.Update(s.Pod); err != nil {
		errs = append(errs, fmt.Errorf("set the pod's limits: %w", err))
	}
	return errors.Join(errs...)
}

// ask tells the runtime the pod's new size before anything has it. A virtual machine grows by it, and plugins of the
// runtime (NRI) may refuse it.
func (rz *resizer) ask(ctx context.Context, s worker.Snapshot) error {
	if len(s.Obs.Sandboxes) == 0 {
		return nil
	}
	overhead, resources := criconfig.SandboxResources(rz.node.CRI(), s.Pod, exclusiveCPUs(s))
	return ignoreNotFound(rz.sizes.UpdatePodSandboxResources(ctx, s.Obs.Sandboxes[0].ID, overhead, resources))
}

// setCPUs changes the CPUs on which a container may run. One that asks for whole CPUs may have had some of its own, and
// so no quota: it gets the one that it is to have now, and so does its pod, unless a resize sees to that.
func (rz *resizer) setCPUs(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	r := &runtimeapi.LinuxContainerResources{CpusetCpus: action.CPUs, CpusetMems: action.MemoryNodes}
	c := plan.Container(s.Pod, action.Container)
	_, resizing := s.Before[action.ID]
	whole := c != nil && !resizing && qos.WholeCPUs(s.Pod, c)
	if whole {
		sized := criconfig.Resized(rz.node.CRI(), s.Pod, c, ownCPUs(s, c.Name))
		r.CpuPeriod, r.CpuQuota = sized.CpuPeriod, sized.CpuQuota
	}
	err := ignoreNotFound(rz.sizes.UpdateContainerResources(ctx, action.ID, r))
	if err != nil {
		return fmt.Errorf("move container %s to the CPUs %q and the memory of the NUMA nodes %q: %s", action.Container,
			action.CPUs, action.MemoryNodes, words(err, action.ID, action.Container))
	}
	if !whole || len(s.Before) > 0 {
		return nil
	}
	if err := rz.cgroups.Update(s.Pod); err != nil {
		return fmt.Errorf("set the pod's limits: %w", err)
	}
	return nil
}

// ownCPUs reports whether the container has CPUs of its own.
func ownCPUs(s worker.Snapshot, container string) bool {
	return s.Allocation.Containers[container].CPUs != ""
}

// resizing visits the running containers that have other resources than the spec says.
func resizing(s worker.Snapshot,
	visit func(c *corev1.Container, cur *topic.Container, has corev1.ResourceRequirements),
) {
	for c := range podspec.InitAndMain(&s.Pod.Spec) {
		for i := range s.Obs.Containers {
			cur := &s.Obs.Containers[i]
			if has, differs := s.Before[cur.ID]; differs && cur.Name == c.Name && cur.State == topic.ContainerRunning {
				visit(c, cur, has)
			}
		}
	}
}

// fits is an error where a memory limit is to sink below what is used: the kernel would kill what it bounds.
func (rz *resizer) fits(ctx context.Context, s worker.Snapshot) error {
	var errs []error
	was := s.Pod.DeepCopy()
	resizing(s, func(c *corev1.Container, cur *topic.Container, has corev1.ResourceRequirements) {
		*allocation.Of(was, c.Name) = has
		limit := c.Resources.Limits.Memory().Value()
		if limit == 0 || has.Limits.Memory().Value() != 0 && has.Limits.Memory().Value() <= limit {
			return
		}
		stats, err := rz.sizes.ContainerStats(ctx, cur.ID)
		if err != nil || stats.GetMemory().GetUsageBytes() == nil {
			errs = append(errs, fmt.Errorf("missing container %q memory usage: %w", c.Name, cmp.Or(err, errNoUsage)))
		} else if usage := stats.GetMemory().GetUsageBytes().GetValue(); usage >= uint64(limit) {
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)",
				c.Name, limit, usage))
		}
	})
	limit, before := rz.cgroups.MemoryLimit(s.Pod), rz.cgroups.MemoryLimit(was)
	if limit > 0 && (before == 0 || before > limit) {
		usage, err := rz.cgroups.MemoryUsage(s.Pod)
		if err != nil {
			errs = append(errs, fmt.Errorf("the pod's memory usage can't be read: %w", err))
		} else if usage >= uint64(limit) {
			errs = append(errs, fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", limit, usage))
		}
	}
	return errors.Join(errs...)
}
