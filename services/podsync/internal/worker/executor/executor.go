// Package executor does what plans say: it is podsync's only caller of the runtime's changing calls. Each action ends
// with a fresh reading of the pod, so that a worker never plans on what was true before its own call.
package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/metrics"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// Do does one action and reads the pod afterwards, also when the action failed or was cancelled.
func (e *Executor) Do(ctx context.Context, s worker.Snapshot, action plan.Action) worker.Outcome {
	var out worker.Outcome
	if action.Kind == plan.ReadPod {
		ctx, cancel := context.WithTimeout(ctx, readPodTimeout)
		defer cancel()
		out.Obs = e.reader.look(ctx, s, action, true)
		return out
	}
	stepCtx, end := e.reports.Events.Step(ctx, s.Pod, string(action.Kind), action.Container, imageOf(s.Pod, action))
	began := time.Now()
	out.Images, out.Err = e.perform(stepCtx, s, action)
	if out.Err == nil || ctx.Err() == nil {
		e.reports.Metrics.Done(metrics.Action{
			Pod: s.Pod, Kind: action.Kind, Container: action.Container,
			Took: time.Since(began), Code: code(out.Err), Err: out.Err,
		})
	}
	if out.Err != nil && ctx.Err() != nil {
		out.Err = errors.Join(context.Cause(ctx), out.Err)
	}
	end(out.Err)
	// Of a pod whose sandboxes are removed nothing is left to be read.
	if action.Kind == plan.EnsureImage || action.Kind == plan.ReleaseNode ||
		action.Kind == plan.RemoveSandboxes && out.Err == nil {
		return out
	}
	out.Obs = e.reader.look(ctx, s, action, out.Err == nil && action.Starts())
	return out
}

// code is the waiting reason of a failure.
func code(err error) string {
	var failed *worker.Failed
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return "Error"
}

// TerminationMessage reads what an ended container left.
func (e *Executor) TerminationMessage(c *topic.Container) string {
	return podstatus.TerminationMessage(c)
}

func (e *Executor) perform(ctx context.Context, s worker.Snapshot, action plan.Action) (worker.Images, error) {
	switch action.Kind {
	case plan.EnsureImage:
		return e.images.ensure(ctx, s, action)
	case plan.CreateSandbox:
		return worker.Images{}, e.sandboxes.create(ctx, s, action)
	case plan.StartContainer:
		return worker.Images{}, e.containers.start(ctx, s, action)
	case plan.StopContainer:
		return worker.Images{}, e.containers.stop(ctx, s, action)
	case plan.RunPreStop:
		return worker.Images{}, e.containers.runPreStop(ctx, s, action)
	case plan.StopSandbox:
		return worker.Images{}, e.sandboxes.stop(ctx, s, action.ID)
	case plan.ResizePod:
		return worker.Images{}, e.resizer.resize(ctx, s)
	case plan.SetCPUs:
		return worker.Images{}, e.resizer.setCPUs(ctx, s, action)
	case plan.RemoveContainer:
		return worker.Images{}, e.containers.remove(ctx, s, action)
	case plan.ReleaseNode:
		return worker.Images{}, e.sandboxes.release(ctx, s)
	case plan.RemoveSandboxes:
		return worker.Images{}, e.sandboxes.remove(ctx, s)
	}
	return worker.Images{}, fmt.Errorf("no such action: %s", action.Kind)
}

// slot waits for the pod's turn.
func slot(ctx context.Context, of *slots.Slots, s worker.Snapshot, patience slots.Patience) (func(), error) {
	release, err := of.Acquire(ctx, s.Turn, patience)
	if err != nil {
		return nil, fmt.Errorf("wait for a free slot: %w", err)
	}
	return release, nil
}

func imageOf(pod *corev1.Pod, action plan.Action) string {
	if c := plan.Container(pod, action.Container); c != nil && action.Kind == plan.EnsureImage {
		return c.Image
	}
	return ""
}

// words is what a user reads of a runtime's error: its own text, with the container's name in place of its ID, so that
// Events of several runs are counted together.
func words(err error, id, name string) string {
	text := err.Error()
	var failed *cri.Error
	if errors.As(err, &failed) {
		text = failed.Message()
	}
	if id != "" {
		text = strings.ReplaceAll(text, id, name)
	}
	return text
}

// wrapped is a runtime's error with gRPC's wrapping, as the kubelet shows those of sandboxes.
func wrapped(err error) string {
	var failed *cri.Error
	if errors.As(err, &failed) {
		return failed.GRPCStatus().Err().Error()
	}
	return err.Error()
}

func ignoreNotFound(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// handler is the name of the pod's runtime handler; empty for the default.
func handler(ctx context.Context, node Handlers, pod *corev1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	return node.Handler(ctx, *pod.Spec.RuntimeClassName)
}
