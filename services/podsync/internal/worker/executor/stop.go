package executor

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/node/orphans"
	"kubelot.dev/services/podsync/internal/runtime/hooks"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// minGrace is what a container gets between SIGTERM and SIGKILL even when its hook used up the grace period.
const minGrace = 2 * time.Second

// stop runs the preStop hook, unless it has run, and stops the container when its turn comes; both share the grace
// period, of which nothing is lost to those that go first.
func (ct *containers) stop(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	began := time.Now()
	if !action.HookRan {
		ct.killing(s.Pod, action)
		if c := plan.Container(s.Pod, action.Container); c != nil && c.Lifecycle != nil &&
			c.Lifecycle.PreStop != nil && action.Grace > 0 {
			hookCtx, end := ct.reports.Events.Step(ctx, s.Pod, string(plan.RunPreStop), action.Container, "")
			end(ct.preStop(hookCtx, s, c, action))
		}
	}
	grace := max(action.Grace-time.Since(began), minGrace)
	release, err := slot(ctx, ct.turns.Stops, s, slots.Stop)
	if err != nil {
		return err
	}
	defer release()
	if err := ignoreNotFound(ct.calls.StopContainer(ctx, action.ID, grace)); err != nil {
		return fmt.Errorf("stop container %s: %w", action.Container, err)
	}
	return nil
}

// runPreStop runs the hook of a container whose turn to be stopped comes later. It fails only if it is broken off. It
// may outlast the grace period by the least time that its container has to end then.
func (ct *containers) runPreStop(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	ct.killing(s.Pod, action)
	action.Grace += minGrace
	// A failure has been reported, and the container is stopped all the same.
	_ = ct.preStop(ctx, s, plan.Container(s.Pod, action.Container), action)
	return context.Cause(ctx)
}

// killing reports that a container's end begins.
func (ct *containers) killing(pod *corev1.Pod, action plan.Action) {
	message := action.Message
	if message == "" || message == "Stopping container" {
		message = "Stopping container " + action.Container
	}
	ct.reports.Events.Event(pod, events.FieldPath(pod, action.Container), corev1.EventTypeNormal, "Killing", message)
}

// preStop runs the hook for at most the grace period; its failure is reported and doesn't keep the container alive. One
// that is broken off, since podsync stops or the grace period was shortened, hasn't failed: it is run again. The error
// is for the step.
func (ct *containers) preStop(ctx context.Context, s worker.Snapshot, c *corev1.Container, action plan.Action) error {
	hookCtx, cancel := context.WithTimeoutCause(ctx, action.Grace,
		fmt.Errorf("the preStop hook took longer than the grace period of %s", action.Grace))
	defer cancel()
	target := hooks.Target{Pod: s.Pod, Container: c, ContainerID: action.ID, PodIP: first(ct.builder.podIPs(s))}
	err := ct.hooks.Run(hookCtx, target, c.Lifecycle.PreStop)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		ct.reports.Log.Warn("preStop hook failed", "pod", s.Pod.Name, "namespace", s.Pod.Namespace,
			"container", c.Name, "error", err)
		ct.reports.Events.Event(s.Pod, events.FieldPath(s.Pod, c.Name), corev1.EventTypeWarning, hooks.ReasonFailedPreStop,
			hooks.MessagePreStop)
	}
	return err
}

func (ct *containers) remove(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	if err := removeLogLink(ct.builder.node.CRI().ContainerLogsDir, s.Pod, action.Container, action.ID); err != nil {
		ct.reports.Log.Warn("can't remove the link to a container's log", "error", err)
	}
	if err := ignoreNotFound(ct.calls.RemoveContainer(ctx, action.ID)); err != nil {
		return err
	}
	for i := range s.Obs.Containers {
		c := &s.Obs.Containers[i]
		// The log of a run that wasn't would count as a restart.
		if c.ID != action.ID || c.LogPath == "" || !plan.Interrupted(c) {
			continue
		}
		if err := os.Remove(c.LogPath); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove the log of a container that never ran: %w", err)
		}
	}
	return nil
}

// linkLog makes the link that log collectors follow. It is a convenience: a failure is logged, the container runs on.
func (ct *containers) linkLog(pod *corev1.Pod, name, id, log string) {
	dir := ct.builder.node.CRI().ContainerLogsDir
	link := orphans.LogLink(dir, pod.Name, pod.Namespace, name, id)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Symlink(log, link)
	}
	if err != nil && !os.IsExist(err) {
		ct.reports.Log.Warn("can't create the link to a container's log", "pod", pod.Name, "namespace", pod.Namespace,
			"container", name, "error", err)
	}
}

// removeLogLink removes the link of a container that the runtime knows. gc removes those of containers that the runtime
// has forgotten.
func removeLogLink(dir string, pod *corev1.Pod, name, id string) error {
	err := os.Remove(orphans.LogLink(dir, pod.Name, pod.Namespace, name, id))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
