package observe

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

// listing are the pods that one pair of lists shows, by UID.
type listing struct {
	at     time.Time
	uptime time.Duration
	pods   map[string]*Listed
}

// sinceBoot is how long ago the machine was booted, by a clock that goes on while it is suspended and that nobody sets.
func sinceBoot() time.Duration {
	var now unix.Timespec
	// CLOCK_BOOTTIME has been there since Linux 2.6.39 and a valid clock is the only thing that can be wrong.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// list reads both lists side by side. selector are labels that the objects must have; nil means any.
func list(ctx context.Context, reader Reader, selector map[string]string) (*listing, error) {
	begin := Now()
	result := &listing{at: begin.At, uptime: begin.Uptime, pods: map[string]*Listed{}}
	var sandboxFilter *runtimeapi.PodSandboxFilter
	var containerFilter *runtimeapi.ContainerFilter
	if selector != nil {
		sandboxFilter = &runtimeapi.PodSandboxFilter{LabelSelector: selector}
		containerFilter = &runtimeapi.ContainerFilter{LabelSelector: selector}
	}
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		sandboxes, err = reader.ListPodSandbox(ctx, sandboxFilter)
		return err
	})
	group.Go(func() (err error) {
		containers, err = reader.ListContainers(ctx, containerFilter)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	result.add(sandboxes, containers)
	return result, nil
}

// add sorts sandboxes and containers by pod. A sandbox without the kubelet's labels (made by crictl, say) is known
// by its metadata, a container by its sandbox; a container of no known pod is nobody's.
func (l *listing) add(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) {
	bySandbox := map[string]topic.Ref{}
	for _, sandbox := range sandboxes {
		meta := sandbox.GetMetadata()
		ref := topic.Ref{Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid()}
		if labelled := labels.Pod(sandbox.GetLabels()); labelled.UID != "" {
			ref = labelled
		}
		bySandbox[sandbox.GetId()] = ref
		if pod := l.pod(ref); pod != nil {
			pod.Sandboxes = append(pod.Sandboxes, sandbox)
		}
	}
	for _, container := range containers {
		ref := labels.Pod(container.GetLabels())
		if ref.UID == "" {
			ref = bySandbox[container.GetPodSandboxId()]
		}
		if pod := l.pod(ref); pod != nil {
			pod.Containers = append(pod.Containers, container)
		}
	}
}

func (l *listing) pod(ref topic.Ref) *Listed {
	if ref.UID == "" {
		return nil
	}
	pod := l.pods[ref.UID]
	if pod == nil {
		pod = &Listed{Ref: ref, At: l.at, Uptime: l.uptime}
		l.pods[ref.UID] = pod
	}
	return pod
}
