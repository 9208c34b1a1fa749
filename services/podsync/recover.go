package podsync

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon"
)

const (
	// retainedWait is how long one try to read what the bus kept of an earlier run may take.
	retainedWait = 5 * time.Second
	// runtimeRetry is how often a runtime that doesn't answer at start is asked again.
	runtimeRetry = time.Second
)

// recovery reads what an earlier run of this daemon left: the pods in the runtime, and what was said of them on the
// bus. It waits for both: without knowing what runs, nothing may be started, and a termination that was forgotten would
// start its pod again.
type recovery struct {
	runtime *cri.Client
	bus     *bus.Conn
	health  daemon.HealthReporter
	log     *slog.Logger
	away    string // why the runtime couldn't be read when it was last tried

	// pods and statuses are what the bus has of the earlier run; nil after forget.
	pods     map[string]topic.Pod
	statuses map[string]topic.PodStatus
}

// cgroupDriver waits for the runtime and asks which cgroup driver it uses (KEP-4033). If the runtime doesn't say, it is
// the driver of the configuration.
func (r *recovery) cgroupDriver(ctx context.Context, configured string) (string, error) {
	for {
		answer, err := r.runtime.RuntimeConfig(ctx)
		switch {
		case err == nil && answer.GetLinux() != nil:
			return strings.ToLower(answer.GetLinux().GetCgroupDriver().String()), nil
		case err == nil, cri.IsUnimplemented(err):
			return configured, nil
		}
		if err := r.waitForRuntime(ctx, err); err != nil {
			return "", err
		}
	}
}

// observed are the pods in the runtime, by UID.
func (r *recovery) observed(ctx context.Context) (map[string]topic.PodObservation, error) {
	for {
		all, err := observe.All(ctx, r.runtime)
		if err == nil {
			observed := map[string]topic.PodObservation{}
			for _, obs := range all {
				observed[obs.UID] = obs
			}
			return observed, nil
		}
		if err := r.waitForRuntime(ctx, err); err != nil {
			return nil, err
		}
	}
}

// waitForRuntime says that the runtime doesn't answer, once for each reason, and waits a moment.
func (r *recovery) waitForRuntime(ctx context.Context, err error) error {
	if text := err.Error(); text != r.away {
		r.away = text
		r.health.Set(topic.Unhealthy, "can't read the container runtime: "+text)
		r.log.Error("can't read the container runtime, retrying", "error", err, "retry_every", runtimeRetry)
	}
	pause.For(ctx, runtimeRetry)
	return context.Cause(ctx)
}

// retained reads what the bus has of the earlier run, and returns the UIDs of the mirror pods that were stated.
func (r *recovery) retained(ctx context.Context) (mirrors map[string]bool, err error) {
	for {
		mirrors, err := r.readBus(ctx)
		if err == nil {
			return mirrors, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.log.Warn("can't read what an earlier run left on the bus, retrying", "error", err)
		r.health.Set(topic.Degraded, "waiting for what an earlier run left on the bus: "+err.Error())
	}
}

func (r *recovery) readBus(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, retainedWait, errors.New("the bus doesn't answer"))
	defer cancel()
	var err error
	if r.pods, err = topic.PodUpdate.Read(ctx, r.bus); err != nil {
		return nil, err
	}
	if r.statuses, err = topic.StatusPatch.Read(ctx, r.bus); err != nil {
		return nil, err
	}
	mirrors := map[string]bool{}
	stated, err := topic.PodMirror.Read(ctx, r.bus)
	for uid := range stated {
		mirrors[uid] = true
	}
	return mirrors, err
}

// forget drops what the bus had of the earlier run: a pod that comes again with the same UID begins from scratch.
func (r *recovery) forget() { r.pods, r.statuses = nil, nil }
