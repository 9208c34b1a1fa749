package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/userns"
	"kubelot.dev/services/podsync/internal/node/orphans"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

const (
	reasonSandboxFailed  = "FailedCreatePodSandBox"
	reasonSandboxChanged = "SandboxChanged"
)

// sandboxes creates and ends sandboxes, and what a pod holds on the node from its first sandbox to its last.
type sandboxes struct {
	calls      Sandboxes
	containers Containers
	node       Node
	pods       Pods
	turns      Turns
	reports    Reports
	reader     *reader
	builder    *builder
	// forget drops what is remembered of the pod's image pulls.
	forget func(pod *corev1.Pod)
}

// create ends what is left of older sandboxes and creates a new one.
func (sb *sandboxes) create(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	if action.Attempt > 0 {
		sb.reports.Events.Event(s.Pod, "", corev1.EventTypeNormal, reasonSandboxChanged,
			"Pod sandbox changed, it will be killed and re-created.")
	}
	if err := sb.grantable(ctx, s.Pod); err != nil {
		sb.failed(ctx, s.Pod, err)
		return err
	}
	config, warnings, err := sb.builder.sandbox(s, action.Attempt)
	if err != nil {
		sb.failed(ctx, s.Pod, err)
		return err
	}
	for _, w := range warnings {
		sb.reports.Events.Event(s.Pod, "", corev1.EventTypeWarning, w.Reason, w.Message)
	}
	return sb.reader.settle(ctx, s.Pod,
		func(ctx context.Context) error { return sb.renew(ctx, s, config) },
		func(obs topic.PodObservation) bool { return plan.Current(s.Pod, obs) != nil })
}

func (sb *sandboxes) renew(ctx context.Context, s worker.Snapshot, config *runtimeapi.PodSandboxConfig) error {
	release, err := slot(ctx, sb.turns.Starts, s, slots.Network)
	if err != nil {
		return err
	}
	defer release()
	for _, old := range s.Obs.Sandboxes {
		if err := ignoreNotFound(sb.calls.StopPodSandbox(ctx, old.ID)); err != nil {
			return fmt.Errorf("stop the sandbox %s before a new one is created: %w", old.ID, err)
		}
	}
	if err := sb.run(ctx, s, config); err != nil {
		if !sb.reader.settling() {
			sb.failed(ctx, s.Pod, err)
		}
		return err
	}
	return nil
}

func (sb *sandboxes) failed(ctx context.Context, pod *corev1.Pod, err error) {
	if ctx.Err() == nil {
		sb.reports.Events.Event(pod, "", corev1.EventTypeWarning, reasonSandboxFailed,
			"Failed to create pod sandbox: "+wrapped(err))
	}
}

func (sb *sandboxes) run(ctx context.Context, s worker.Snapshot, config *runtimeapi.PodSandboxConfig) error {
	if _, err := sb.pods.Cgroups.Create(s.Pod); err != nil {
		return fmt.Errorf("create the pod's cgroup: %w", err)
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("create the pod's log directory: %w", err)
	}
	handler, err := handler(ctx, sb.node, s.Pod)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = sb.calls.RunPodSandbox(ctx, config, handler)
	sb.reports.Metrics.RanSandbox(s.Pod.UID, handler, time.Since(began), err)
	return err
}

// grantable says why a pod can't be given the user namespace that it asks for; nil where it can, or asks for none. A
// runtime that can't make one would run the pod in the host's, as root of the node.
func (sb *sandboxes) grantable(ctx context.Context, pod *corev1.Pod) error {
	if !userns.Wanted(pod) {
		return nil
	}
	handler, err := handler(ctx, sb.node, pod)
	if err != nil {
		return err
	}
	ok, err := sb.node.UserNamespaces(handler)
	if err != nil {
		return fmt.Errorf("the pod asks for a user namespace (hostUsers: false): %w", err)
	}
	if !ok {
		return fmt.Errorf(
			"RuntimeClass handler %q does not support user namespaces, which the pod asks for (hostUsers: false)", handler)
	}
	return nil
}

func (sb *sandboxes) stop(ctx context.Context, s worker.Snapshot, id string) error {
	release, err := slot(ctx, sb.turns.Stops, s, slots.Stop)
	if err != nil {
		return err
	}
	defer release()
	return ignoreNotFound(sb.calls.StopPodSandbox(ctx, id))
}

// release gives back what the pod holds on the node once its volumes are unmounted.
func (sb *sandboxes) release(ctx context.Context, s worker.Snapshot) error {
	if err := sb.pods.Cgroups.Destroy(ctx, s.Pod.UID); err != nil {
		return fmt.Errorf("remove the pod's cgroup: %w", err)
	}
	// A pod that has ended may stay for long, and there are as many ranges as pods that run.
	return sb.pods.UserNS.Release(s.Pod.UID)
}

// remove removes all that the runtime still has of the pod, its logs and its directory.
func (sb *sandboxes) remove(ctx context.Context, s worker.Snapshot) error {
	release, err := slot(ctx, sb.turns.Stops, s, slots.Stop)
	if err != nil {
		return err
	}
	defer release()
	var failed error
	for _, sandbox := range s.Obs.Sandboxes {
		var err error
		if !s.Stopped[sandbox.ID] {
			err = ignoreNotFound(sb.calls.StopPodSandbox(ctx, sandbox.ID))
		}
		if err == nil {
			err = ignoreNotFound(sb.calls.RemovePodSandbox(ctx, sandbox.ID))
		}
		failed = errors.Join(failed, err)
	}
	if len(s.Obs.Sandboxes) == 0 {
		for _, c := range s.Obs.Containers {
			failed = errors.Join(failed, ignoreNotFound(sb.containers.RemoveContainer(ctx, c.ID)))
		}
	}
	sb.forget(s.Pod)
	node := sb.node.CRI()
	for _, c := range s.Obs.Containers {
		failed = errors.Join(failed, removeLogLink(node.ContainerLogsDir, s.Pod, c.Name, c.ID))
	}
	return errors.Join(failed, sb.pods.UserNS.Release(s.Pod.UID),
		orphans.RemoveLogDir(node.PodLogsDir, s.Pod.Namespace, s.Pod.Name, s.Pod.UID),
		orphans.RemovePodDir(node.RootDir, s.Pod.UID))
}
