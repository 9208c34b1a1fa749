// Package act does what plans say: it is podsync's only caller of the runtime's changing calls. Each deed ends
// with a fresh reading of the pod, so that a worker never plans on what was true before its own call.
package act

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/services/podsync/internal/criconfig"
	"kubelot.dev/services/podsync/internal/dns"
	"kubelot.dev/services/podsync/internal/env"
	"kubelot.dev/services/podsync/internal/hooks"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/meter"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/podstatus"
	"kubelot.dev/services/podsync/internal/report"
	"kubelot.dev/services/podsync/internal/slots"
	"kubelot.dev/services/podsync/internal/worker"
)

// Sandboxes are the runtime's calls that change sandboxes.
type Sandboxes interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Containers are the runtime's calls that change containers.
type Containers interface {
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
}

// Cgroups keeps pod cgroups.
type Cgroups interface {
	Create(pod *corev1.Pod) (parent string, err error)
	Parent(pod *corev1.Pod) string
	Destroy(ctx context.Context, uid types.UID) error
	Resizer
}

// Node gives the node's facts, which may change while pods run.
type Node interface {
	Handlers
	CRI() *criconfig.Node
	DNS() (dns.Node, error)
	HostIPs() []string
	Allocatable() corev1.ResourceList
}

// Handlers tell of the runtime's handlers.
type Handlers interface {
	// Handler is the runtime handler of a RuntimeClass; "" names none.
	Handler(ctx context.Context, class string) (string, error)
	// RecursiveReadOnly tells whether the pod's runtime handler can mount read-only recursively.
	RecursiveReadOnly(pod *corev1.Pod) bool
	// UserNamespaces tells whether the runtime handler can give a pod a user namespace.
	UserNamespaces(handler string) (bool, error)
}

// Deps are what an Actor works with.
type Deps struct {
	Sandboxes  Sandboxes
	Containers Containers
	Sizes      Sizes
	// Observe reads one pod from the runtime; what it said earlier and can't have changed isn't asked again.
	Observe func(ctx context.Context, uid string, earlier *topic.PodObservation) (topic.PodObservation, error)
	Images  *image.Puller
	Sources env.Sources
	Hooks   *hooks.Runner
	Cgroups Cgroups
	// Slots bound the expensive calls that bring something up, Stops those that end something: a start that hangs keeps
	// no pod from its end.
	Slots, Stops *slots.Slots
	Node         Node
	// SubPaths asks the volume daemon for the host paths of subPath mounts.
	SubPaths func(ctx context.Context, req topic.SubPathRequest) (topic.SubPathReply, error)
	UserNS   *UserNamespaces
	// Settling tells whether calls of an earlier process may be under way still; see settle. nil means never.
	Settling func() bool
	Report   *report.Reporter
	Meter    *meter.Meter
	Log      *slog.Logger
}

// Actor does deeds. Its methods may be called from any goroutine.
type Actor struct {
	Deps
	// hosts is held while a hosts file is written: containers of one pod may start at once.
	hosts sync.Mutex
}

// New makes an Actor.
func New(deps Deps) *Actor {
	if deps.Settling == nil {
		deps.Settling = func() bool { return false }
	}
	return &Actor{Deps: deps}
}

// Crowded tells whether pods queue for their starts or their ends.
func (a *Actor) Crowded() bool { return a.Slots.Crowded() || a.Stops.Crowded() }

const (
	// observeTimeout bounds a reading after a deed.
	observeTimeout = 20 * time.Second
	// readPodTimeout is for how long ReadPod looks for a complete reading before it makes do with what there is.
	readPodTimeout = time.Minute
	// lookAgainFirst and lookAgainMax are the pauses between readings that weren't complete.
	lookAgainFirst, lookAgainMax = 200 * time.Millisecond, 5 * time.Second
)

// Do does one deed and reads the pod afterwards, also when the deed failed or was cancelled.
func (a *Actor) Do(ctx context.Context, s worker.Snapshot, action plan.Action) worker.Outcome {
	var out worker.Outcome
	if action.Kind == plan.ReadPod {
		ctx, cancel := context.WithTimeout(ctx, readPodTimeout)
		defer cancel()
		out.Obs = a.look(ctx, s, action, true)
		return out
	}
	end := a.Report.Step(s.Pod, string(action.Kind), action.Container, imageOf(s.Pod, action))
	began := time.Now()
	out.Images, out.Err = a.deed(ctx, s, action)
	if out.Err == nil || ctx.Err() == nil {
		a.Meter.Done(meter.Deed{Pod: s.Pod, Kind: action.Kind, Container: action.Container, Took: time.Since(began), Code: code(out.Err), Err: out.Err})
	}
	if out.Err != nil && ctx.Err() != nil {
		out.Err = errors.Join(context.Cause(ctx), out.Err)
	}
	end(out.Err)
	// Of a pod whose sandboxes are removed nothing is left to be read.
	if action.Kind == plan.EnsureImage || action.Kind == plan.ReleaseNode || action.Kind == plan.RemoveSandboxes && out.Err == nil {
		return out
	}
	out.Obs = a.look(ctx, s, action, out.Err == nil && action.Starts())
	return out
}

// look reads the pod after a deed; nil where that isn't possible. Where it is to be patient it doesn't give up before it has seen
// all of the pod, or ctx ends: what was brought up and isn't seen would be brought up a second time.
func (a *Actor) look(ctx context.Context, s worker.Snapshot, action plan.Action, patient bool) *topic.PodObservation {
	for pause := lookAgainFirst; ; pause = min(2*pause, lookAgainMax) {
		obs, err := a.observe(ctx, s)
		if err == nil && len(obs.Errors) == 0 {
			return &obs
		}
		if pause == lookAgainFirst {
			a.Log.Warn("pod can't be read from the runtime after a step", "pod", s.Pod.Name, "namespace", s.Pod.Namespace,
				"step", string(action.Kind), "error", unread(obs, err))
		}
		if patient && ctx.Err() == nil {
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		if err != nil {
			return nil
		}
		return &obs
	}
}

// code is the waiting reason of a failure.
func code(err error) string {
	var failed *worker.Failed
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return "Error"
}

func unread(obs topic.PodObservation, err error) error {
	if err != nil {
		return err
	}
	return errors.New(first(obs.Errors))
}

func (a *Actor) observe(ctx context.Context, s worker.Snapshot) (topic.PodObservation, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
	defer cancel()
	return a.Observe(ctx, string(s.Pod.UID), &s.Obs)
}

// TerminationMessage reads what an ended container left.
func (a *Actor) TerminationMessage(c *topic.Container) string { return podstatus.TerminationMessage(c) }

func (a *Actor) deed(ctx context.Context, s worker.Snapshot, action plan.Action) (worker.Images, error) {
	switch action.Kind {
	case plan.EnsureImage:
		return a.ensureImage(ctx, s, action)
	case plan.CreateSandbox:
		return worker.Images{}, a.createSandbox(ctx, s, action)
	case plan.StartContainer:
		return worker.Images{}, a.startContainer(ctx, s, action)
	case plan.StopContainer:
		return worker.Images{}, a.stopContainer(ctx, s, action)
	case plan.RunPreStop:
		return worker.Images{}, a.runPreStop(ctx, s, action)
	case plan.StopSandbox:
		return worker.Images{}, a.stopSandbox(ctx, s, action.ID)
	case plan.ResizePod:
		return worker.Images{}, a.resizePod(ctx, s)
	case plan.RemoveContainer:
		return worker.Images{}, a.removeContainer(ctx, s, action)
	case plan.ReleaseNode:
		return worker.Images{}, a.release(ctx, s)
	case plan.RemoveSandboxes:
		return worker.Images{}, a.removeSandboxes(ctx, s)
	}
	return worker.Images{}, fmt.Errorf("no such deed: %s", action.Kind)
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
