package act

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/cleanup"
	"kubelot.dev/services/podsync/internal/hooks"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/report"
	"kubelot.dev/services/podsync/internal/slots"
	"kubelot.dev/services/podsync/internal/worker"
)

// minGrace is what a container gets between SIGTERM and SIGKILL even when its hook used up the grace period.
const minGrace = 2 * time.Second

func (a *Actor) stopContainer(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	return a.stop(ctx, s, action)
}

// stop runs the preStop hook, unless it has run, and stops the container when its turn comes; both share the grace period, of
// which nothing is lost to those that go first.
func (a *Actor) stop(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	began := time.Now()
	if !action.HookRan {
		a.killing(s.Pod, action)
		if c := plan.Container(s.Pod, action.Container); c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && action.Grace > 0 {
			a.preStop(ctx, s, c, action)
		}
	}
	grace := max(action.Grace-time.Since(began), minGrace)
	release, err := slot(ctx, a.Stops, s, slots.Stop)
	if err != nil {
		return err
	}
	defer release()
	if err := ignoreNotFound(a.Containers.StopContainer(ctx, action.ID, grace)); err != nil {
		return fmt.Errorf("stop container %s: %w", action.Container, err)
	}
	return nil
}

// runPreStop runs the hook of a container whose turn to be stopped comes later. It fails only if it is broken off.
func (a *Actor) runPreStop(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	a.killing(s.Pod, action)
	a.preStop(ctx, s, plan.Container(s.Pod, action.Container), action)
	return context.Cause(ctx)
}

// killing tells that a container's end begins.
func (a *Actor) killing(pod *corev1.Pod, action plan.Action) {
	message := action.Message
	if message == "" || message == "Stopping container" {
		message = "Stopping container " + action.Container
	}
	a.Report.Event(pod, report.FieldPath(pod, action.Container), corev1.EventTypeNormal, "Killing", message)
}

// preStop runs the hook for at most the grace period; its failure is reported and doesn't keep the container alive. One that is
// broken off, since podsync stops or the grace period was shortened, hasn't failed: it is run again.
func (a *Actor) preStop(ctx context.Context, s worker.Snapshot, c *corev1.Container, action plan.Action) {
	hookCtx, cancel := context.WithTimeoutCause(ctx, action.Grace, fmt.Errorf("the preStop hook took longer than the grace period of %s", action.Grace))
	defer cancel()
	target := hooks.Target{Pod: s.Pod, Container: c, ContainerID: action.ID, PodIP: first(a.podIPs(s))}
	if err := a.Hooks.Run(hookCtx, target, c.Lifecycle.PreStop); err != nil && ctx.Err() == nil {
		a.Log.Warn("preStop hook failed", "pod", s.Pod.Name, "namespace", s.Pod.Namespace, "container", c.Name, "error", err)
		a.Report.Event(s.Pod, report.FieldPath(s.Pod, c.Name), corev1.EventTypeWarning, hooks.ReasonFailedPreStop, hooks.MessagePreStop)
	}
}

func (a *Actor) removeContainer(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	a.removeLogLink(s.Pod, action.Container, action.ID)
	if err := ignoreNotFound(a.Containers.RemoveContainer(ctx, action.ID)); err != nil {
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
func (a *Actor) linkLog(pod *corev1.Pod, name, id, log string) {
	dir := a.Node.CRI().ContainerLogsDir
	link := cleanup.LogLink(dir, pod.Name, pod.Namespace, name, id)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Symlink(log, link)
	}
	if err != nil && !os.IsExist(err) {
		a.Log.Warn("link to the container's log can't be made", "pod", pod.Name, "namespace", pod.Namespace, "container", name, "error", err)
	}
}

func (a *Actor) removeLogLink(pod *corev1.Pod, name, id string) {
	link := cleanup.LogLink(a.Node.CRI().ContainerLogsDir, pod.Name, pod.Namespace, name, id)
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		a.Log.Warn("link to the container's log can't be removed", "link", link, "error", err)
	}
}
