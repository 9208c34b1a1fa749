package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/hooks"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// Waiting reasons of failed starts, as the kubelet names them.
const (
	reasonCreateError = "CreateContainerError"
	reasonRunError    = "RunContainerError"
	reasonFailed      = "Failed"
)

// stepPostStart is the step within a container's start that runs its postStart hook.
const stepPostStart = "run postStart hook"

// containers starts, stops and removes containers.
type containers struct {
	calls   Containers
	hooks   *hooks.Runner
	turns   Turns
	reports Reports
	reader  *reader
	builder *builder
}

// start creates a container unless it is there already, starts it, and runs its postStart hook.
func (ct *containers) start(ctx context.Context, s worker.Snapshot, action plan.Action) error {
	c := plan.Container(s.Pod, action.Container)
	if c == nil {
		return fmt.Errorf("the pod has no container %q any more", action.Container)
	}
	u := &upcoming{containers: ct, s: s, c: c, action: action, path: events.FieldPath(s.Pod, c.Name), id: action.ID}
	if err := u.prepare(ctx); err != nil {
		ct.failed(ctx, s.Pod, u.path, err.Error())
		return &worker.Failed{Reason: criconfig.ReasonConfigError, Message: err.Error()}
	}
	if err := ct.reader.settle(ctx, s.Pod, u.up, u.adopt); err != nil {
		return err
	}
	if !u.runs || c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	return u.postStart(ctx)
}

// upcoming is a container on its way.
type upcoming struct {
	*containers
	s      worker.Snapshot
	c      *corev1.Container
	action plan.Action
	path   string // in Events
	// config and sandbox are what it is created with; nil for one that was there already.
	config  *runtimeapi.ContainerConfig
	sandbox *runtimeapi.PodSandboxConfig

	id   string // empty until it is created
	log  string // the file of its log
	runs bool
}

// prepare readies what is needed to create the container, outside of any slot.
func (u *upcoming) prepare(ctx context.Context) error {
	if u.id != "" {
		for i := range u.s.Obs.Containers {
			if c := &u.s.Obs.Containers[i]; c.ID == u.id {
				u.log = c.LogPath
			}
		}
		return nil
	}
	var err error
	if u.config, u.sandbox, err = u.builder.container(ctx, u.s, u.c, u.action); err != nil {
		return err
	}
	u.log = filepath.Join(u.sandbox.LogDirectory, u.config.LogPath)
	return nil
}

// up creates and starts within one slot.
func (u *upcoming) up(ctx context.Context) error {
	release, err := slot(ctx, u.turns.Starts, u.s, slots.Disk)
	if err != nil {
		return err
	}
	defer release()
	if u.id == "" {
		id, err := u.calls.CreateContainer(ctx, u.action.SandboxID, u.config, u.sandbox)
		if err != nil {
			text := words(err, "", "")
			u.callFailed(ctx, text)
			return &worker.Failed{Reason: reasonCreateError, Message: text}
		}
		u.created(id)
	}
	// Before the start: what happens after it isn't done if podsync is killed meanwhile.
	u.linkLog(u.s.Pod, u.c.Name, u.id, u.log)
	if err := u.calls.StartContainer(ctx, u.id); err != nil {
		text := words(err, u.id, u.c.Name)
		u.callFailed(ctx, text)
		return &worker.Failed{Reason: reasonRunError, Message: text}
	}
	u.started()
	return nil
}

// adopt takes the container that an earlier process's call has created or started meanwhile, and reports whether
// nothing is left to do for it.
func (u *upcoming) adopt(obs topic.PodObservation) bool {
	if sandbox := plan.Current(u.s.Pod, obs); sandbox == nil || sandbox.ID != u.action.SandboxID {
		return true // what to do without the sandbox is the plan's business
	}
	for i := range obs.Containers {
		c := &obs.Containers[i]
		if c.ID != u.id && (u.id != "" || c.Name != u.c.Name || c.SandboxID != u.action.SandboxID ||
			c.Attempt != u.config.GetMetadata().GetAttempt()) {
			continue
		}
		if u.id == "" {
			u.created(c.ID)
		}
		if c.State == topic.ContainerRunning {
			u.started()
		}
		// So is one that has ended by now.
		return c.State != topic.ContainerCreated
	}
	return false
}

// postStart runs the container's hook and stops the container if it fails.
func (u *upcoming) postStart(ctx context.Context) error {
	s, c := u.s, u.c
	target := hooks.Target{Pod: s.Pod, Container: c, ContainerID: u.id, PodIP: first(u.builder.podIPs(s))}
	hookCtx, end := u.reports.Events.Step(ctx, s.Pod, stepPostStart, c.Name, "")
	err := u.hooks.Run(hookCtx, target, c.Lifecycle.PostStart)
	if ctx.Err() != nil {
		// The hook was broken off, it didn't fail. A pod that ends is stopped by its plan, within its own grace period;
		// where only podsync ends, the container runs on.
		end(context.Cause(ctx))
		return context.Cause(ctx)
	}
	end(err)
	if err == nil {
		return nil
	}
	u.reports.Log.Warn("postStart hook failed, stopping the container", "pod", s.Pod.Name, "namespace", s.Pod.Namespace,
		"container", c.Name, "error", err)
	u.reports.Events.Event(s.Pod, u.path, corev1.EventTypeWarning, hooks.ReasonFailedPostStart, hooks.MessagePostStart)
	stopErr := u.stop(context.WithoutCancel(ctx), s, plan.Action{
		Container: c.Name, ID: u.id, Grace: plan.PodGrace(s.Pod),
		Message: hooks.ReasonFailedPostStart,
	})
	return &worker.Failed{Reason: hooks.ReasonPostStartError, Message: errors.Join(err, stopErr).Error()}
}

func (u *upcoming) created(id string) {
	u.id = id
	u.reports.Events.Event(u.s.Pod, u.path, corev1.EventTypeNormal, "Created", "Container created")
}

func (u *upcoming) started() {
	u.runs = true
	u.reports.Events.Event(u.s.Pod, u.path, corev1.EventTypeNormal, "Started", "Container started")
}

// callFailed reports a call of the runtime that failed, unless settle may try it again.
func (u *upcoming) callFailed(ctx context.Context, text string) {
	if !u.reader.settling() {
		u.failed(ctx, u.s.Pod, u.path, text)
	}
}

func (ct *containers) failed(ctx context.Context, pod *corev1.Pod, path, text string) {
	if ctx.Err() == nil {
		ct.reports.Events.Event(pod, path, corev1.EventTypeWarning, reasonFailed, "Error: "+text)
	}
}
