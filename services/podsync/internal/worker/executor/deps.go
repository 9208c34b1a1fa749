package executor

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/dns"
	"kubelot.dev/services/podsync/internal/runtime/env"
	"kubelot.dev/services/podsync/internal/runtime/hooks"
	"kubelot.dev/services/podsync/internal/worker/metrics"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// Sandboxes are the runtime's calls that change sandboxes.
type Sandboxes interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Containers are the runtime's calls that change containers.
type Containers interface {
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
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
	Shares
	CRI() *criconfig.Node
	DNS() (dns.Node, error)
	HostIPs() []string
}

// Shares are what pods share of the node.
type Shares interface {
	Allocatable() corev1.ResourceList
	// SharedCPUs are the CPUs of containers that have none of their own, as a list; empty for all.
	SharedCPUs() string
}

// Handlers describe the runtime's handlers.
type Handlers interface {
	// Handler is the runtime handler of a RuntimeClass; "" names none.
	Handler(ctx context.Context, class string) (string, error)
	// RecursiveReadOnly reports whether the pod's runtime handler can mount read-only recursively.
	RecursiveReadOnly(pod *corev1.Pod) bool
	// UserNamespaces reports whether the runtime handler can give a pod a user namespace.
	UserNamespaces(handler string) (bool, error)
}

// Runtime is how the container runtime is changed and read.
type Runtime struct {
	Sandboxes  Sandboxes
	Containers Containers
	Sizes      Sizes
	// Observe reads one pod from the runtime; what it said earlier and can't have changed isn't asked again.
	Observe func(ctx context.Context, uid string, earlier *topic.PodObservation) (topic.PodObservation, error)
	// Settling reports whether calls of an earlier process may be under way still; see reader.settle. nil means never.
	Settling func() bool
}

// Pods is what pods get from the node outside of the runtime.
type Pods struct {
	Cgroups Cgroups
	UserNS  *UserNamespaces
	// SubPaths asks the volume daemon for the host paths of subPath mounts.
	SubPaths func(ctx context.Context, req topic.SubPathRequest) (topic.SubPathReply, error)
	// PreStart asks the resource daemon to have a container's devices made ready.
	PreStart func(ctx context.Context, req topic.PreStartRequest) (topic.PreStartReply, error)
}

// Turns bound the expensive calls: Starts those that bring something up, Stops those that end something. They are
// separate, so that starts that hang don't keep pods from their end.
type Turns struct{ Starts, Stops *slots.Slots }

// Crowded reports whether pods queue for their starts or their ends.
func (t Turns) Crowded() bool { return t.Starts.Crowded() || t.Stops.Crowded() }

// Reports are where an Executor reports what it does.
type Reports struct {
	Events  *events.Reporter
	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// Deps are what an Executor works with.
type Deps struct {
	Runtime Runtime
	Node    Node
	Pods    Pods
	Images  *image.Puller
	// Sources are the ConfigMaps, Secrets and Services that containers refer to.
	Sources env.Sources
	Hooks   *hooks.Runner
	Turns   Turns
	Reports Reports
}

// Executor does what plans say. Its methods may be called from any goroutine.
type Executor struct {
	reader     *reader
	images     *images
	sandboxes  *sandboxes
	containers *containers
	resizer    *resizer
	reports    Reports
}

// New makes an Executor.
func New(d Deps) *Executor {
	r := &reader{runtime: d.Runtime, log: d.Reports.Log}
	b := &builder{node: d.Node, sources: d.Sources, pods: d.Pods}
	return &Executor{
		reader: r,
		images: &images{
			puller: d.Images, sources: d.Sources, node: d.Node, report: d.Reports.Events, cgroups: d.Pods.Cgroups,
		},
		sandboxes: &sandboxes{
			calls: d.Runtime.Sandboxes, containers: d.Runtime.Containers, node: d.Node, pods: d.Pods, turns: d.Turns,
			reports: d.Reports, reader: r, builder: b, forget: d.Images.Forget,
		},
		containers: &containers{
			calls: d.Runtime.Containers, hooks: d.Hooks, turns: d.Turns, reports: d.Reports, reader: r, builder: b,
		},
		resizer: &resizer{sizes: d.Runtime.Sizes, cgroups: d.Pods.Cgroups, node: d.Node},
		reports: d.Reports,
	}
}
