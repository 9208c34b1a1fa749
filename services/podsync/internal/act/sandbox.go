package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/cleanup"
	"kubelot.dev/services/podsync/internal/criconfig"
	"kubelot.dev/services/podsync/internal/dns"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/slots"
	"kubelot.dev/services/podsync/internal/worker"
)

const (
	reasonSandboxFailed  = "FailedCreatePodSandBox"
	reasonSandboxChanged = "SandboxChanged"
)

// createSandbox ends what is left of older sandboxes and creates a new one.
func (a *Actor) createSandbox(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	if action.Attempt > 0 {
		a.Report.Event(s.Pod, "", corev1.EventTypeNormal, reasonSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
	}
	if err := a.grantable(ctx, s.Pod); err != nil {
		a.sandboxFailed(ctx, s.Pod, err)
		return err
	}
	config, warnings, err := a.sandboxConfig(s, action.Attempt)
	if err != nil {
		a.sandboxFailed(ctx, s.Pod, err)
		return err
	}
	for _, w := range warnings {
		a.Report.Event(s.Pod, "", corev1.EventTypeWarning, w.Reason, w.Message)
	}
	return a.settle(ctx, s.Pod,
		func(ctx context.Context) error { return a.renewSandbox(ctx, s, config) },
		func(obs topic.PodObservation) bool { return plan.Current(s.Pod, obs) != nil })
}

func (a *Actor) renewSandbox(ctx context.Context, s worker.Snapshot, config *runtimeapi.PodSandboxConfig) error {
	release, err := slot(ctx, a.Slots, s, slots.Network)
	if err != nil {
		return err
	}
	defer release()
	for _, old := range s.Obs.Sandboxes {
		if err := ignoreNotFound(a.Sandboxes.StopPodSandbox(ctx, old.ID)); err != nil {
			return fmt.Errorf("stop the sandbox %s before a new one is created: %w", old.ID, err)
		}
	}
	if err := a.runSandbox(ctx, s, config); err != nil {
		if !a.Settling() {
			a.sandboxFailed(ctx, s.Pod, err)
		}
		return err
	}
	return nil
}

func (a *Actor) sandboxFailed(ctx context.Context, pod *corev1.Pod, err error) {
	if ctx.Err() == nil {
		a.Report.Event(pod, "", corev1.EventTypeWarning, reasonSandboxFailed, "Failed to create pod sandbox: "+wrapped(err))
	}
}

func (a *Actor) runSandbox(ctx context.Context, s worker.Snapshot, config *runtimeapi.PodSandboxConfig) error {
	if _, err := a.Cgroups.Create(s.Pod); err != nil {
		return fmt.Errorf("create the pod's cgroup: %w", err)
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("create the pod's log directory: %w", err)
	}
	handler, err := a.handler(ctx, s.Pod)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = a.Sandboxes.RunPodSandbox(ctx, config, handler)
	a.Meter.RanSandbox(handler, time.Since(began), err)
	return err
}

func (a *Actor) handler(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	return a.Node.Handler(ctx, *pod.Spec.RuntimeClassName)
}

// sandboxConfig is what a sandbox is created with, and what the user must know of its DNS settings.
func (a *Actor) sandboxConfig(s worker.Snapshot, attempt uint32) (*runtimeapi.PodSandboxConfig, []dns.Warning, error) {
	resolver, err := a.Node.DNS()
	if err != nil {
		return nil, nil, err
	}
	dnsConfig, warnings := dns.ForPod(resolver, s.Pod)
	userNS, err := a.UserNS.For(s.Pod)
	if err != nil {
		return nil, nil, err
	}
	config, err := criconfig.Sandbox(a.Node.CRI(), criconfig.SandboxInput{
		Pod: s.Pod, Attempt: attempt, DNS: dnsConfig, CgroupParent: a.Cgroups.Parent(s.Pod), UserNamespace: userNS, SupplementalGroups: groups(s),
	})
	return config, warnings, err
}

// groups are the supplemental groups that the pod's volumes ask for.
func groups(s worker.Snapshot) []int64 {
	var gids []int64
	for i := range s.Pod.Spec.Volumes {
		if gid := s.Volumes.Volumes[s.Pod.Spec.Volumes[i].Name].SupplementalGroup; gid != nil {
			gids = append(gids, *gid)
		}
	}
	return gids
}

func (a *Actor) stopSandbox(ctx context.Context, s worker.Snapshot, id string) error {
	release, err := slot(ctx, a.Stops, s, slots.Stop)
	if err != nil {
		return err
	}
	defer release()
	return ignoreNotFound(a.Sandboxes.StopPodSandbox(ctx, id))
}

// release gives back what the pod holds on the node once its volumes are unmounted.
func (a *Actor) release(ctx context.Context, s worker.Snapshot) error {
	if err := a.Cgroups.Destroy(ctx, s.Pod.UID); err != nil {
		return fmt.Errorf("remove the pod's cgroup: %w", err)
	}
	if !s.Going {
		return nil
	}
	a.UserNS.Release(s.Pod.UID)
	return cleanup.RemovePodDir(a.Node.CRI().RootDir, s.Pod.UID)
}

// removeSandboxes removes all that the runtime still has of the pod, and its logs.
func (a *Actor) removeSandboxes(ctx context.Context, s worker.Snapshot) error {
	release, err := slot(ctx, a.Stops, s, slots.Stop)
	if err != nil {
		return err
	}
	defer release()
	var failed error
	for _, sandbox := range s.Obs.Sandboxes {
		var err error
		if !s.Stopped[sandbox.ID] {
			err = ignoreNotFound(a.Sandboxes.StopPodSandbox(ctx, sandbox.ID))
		}
		if err == nil {
			err = ignoreNotFound(a.Sandboxes.RemovePodSandbox(ctx, sandbox.ID))
		}
		failed = errors.Join(failed, err)
	}
	if len(s.Obs.Sandboxes) == 0 {
		for _, c := range s.Obs.Containers {
			failed = errors.Join(failed, ignoreNotFound(a.Containers.RemoveContainer(ctx, c.ID)))
		}
	}
	a.Images.Forget(s.Pod)
	node := a.Node.CRI()
	return errors.Join(failed,
		cleanup.RemoveLinks(node.ContainerLogsDir, a.logDir(s.Pod)),
		cleanup.RemoveLogDir(node.PodLogsDir, s.Pod.Namespace, s.Pod.Name, s.Pod.UID),
		cleanup.RemovePodDir(node.RootDir, s.Pod.UID))
}
