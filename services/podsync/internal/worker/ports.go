package worker

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// Executor does what a plan says.
type Executor interface {
	// Do returns after the action; it may take as long as the context allows.
	Do(ctx context.Context, s Snapshot, a plan.Action) Outcome
	// TerminationMessage reads what an ended container left; it takes as long as the disk does.
	TerminationMessage(c *topic.Container) string
}

// Reporter is what a worker writes.
type Reporter interface {
	// Pod states the pod, and what the API server has of its status; nil leaves either as it was stated.
	Pod(p *topic.Pod, object *topic.APIPod)
	Status(s topic.PodStatus)
	Event(pod *corev1.Pod, fieldPath, eventType, reason, message string)
}

// Snapshot is what an action may rely on. Nobody changes it.
type Snapshot struct {
	Pod     *corev1.Pod
	Obs     topic.PodObservation
	Volumes topic.PodVolumes
	// Allocation is what the pod has for itself.
	Allocation topic.Allocation
	// Images are what the container must be created with, for StartContainer.
	Images Images
	// Before are the resources that running containers have still, by their ID, for ResizePod.
	Before map[string]corev1.ResourceRequirements
	// Turn is the action's place among those that wait for a slot.
	Turn slots.Turn
	// Static is true for a pod from a manifest.
	Static bool
	// Stopped are the sandboxes, by ID, that were stopped.
	Stopped map[string]bool
	// Anew is true for EnsureImage if earlier failures of the pull must not hold it back.
	Anew bool
}

// Outcome is how an action ended.
type Outcome struct {
	// Obs is a reading of the runtime after the action, if one was possible.
	Obs *topic.PodObservation
	// Images are what EnsureImage made present.
	Images Images
	// Err is why the action failed. A *Failed has the waiting reason.
	Err error
}

// Images are a container's own image and those of the image volumes it mounts, by the volume's name.
type Images struct {
	image.Image
	Volumes map[string]*runtimeapi.ImageSpec
}

// Failed is a failure with the reason and message that the container's waiting state shows.
type Failed struct {
	Reason  string
	Message string
	// RetryAt is when to try again; zero leaves it to the worker's own back-off.
	RetryAt time.Time
}

// Error is the failure's message.
func (f *Failed) Error() string { return f.Message }

// Config is what a worker is made with.
type Config struct {
	Pod       *corev1.Pod
	Source    topic.Source
	FirstSeen time.Time
	// Rank is the place of the pod's starts among those of others.
	Rank uint64
	// NextRank gives places behind all that were given before, to the pod's end; nil means that it has the place of its
	// starts.
	NextRank func() uint64
	// Previous is the last known status, of the API server or from the bus.
	Previous corev1.PodStatus
	// Reject ends the pod before it began: it failed admission with this reason.
	Reject *Failed
	// Room is what the pod waits for before it has a sandbox, or is resized.
	Room Room
	// Restored is what the bus still has of the pod from before a restart of this daemon.
	Restored *topic.Pod
	// Settling reports whether calls of an earlier run of this daemon may be under way still; nil means never.
	Settling func() bool
	// Allocates is true for a pod that waits for pod.allocation before anything of it is created.
	Allocates bool
	// Shared is where containers may run that have no CPUs or memory of their own. nil means that nobody decides on that.
	Shared func() plan.Cpuset
	// Pending is the answer to a request for other resources than Pod has; nil if there is none.
	Pending *Pending
	Node    Node
	// Crowded reports whether pods queue for their starts or their ends; nil means never.
	Crowded func() bool
	// Applied is the CPU and memory that a pod's cgroup has by its spec, nil if it has none of its own. A nil function
	// means that for all pods.
	Applied func(pod *corev1.Pod) *corev1.ResourceRequirements
	// Released is called once the pod has ended and holds nothing on the node any more. What is left, its sandboxes and
	// files, is in nobody's way. It must not wait for anything. nil means that nobody asks.
	Released func()
	// Metrics takes the measurements.
	Metrics Metrics
}

// Metrics measures workers.
type Metrics interface {
	// Worked records that something was under way all the time that it took.
	Worked(uid types.UID, operation string, took time.Duration)
	// Stated records a status that takes the place of an earlier one.
	Stated(uid types.UID, firstSeen time.Time, before, after *corev1.PodStatus)
	// Rejected records a pod that may not run here.
	Rejected(reason string)
}

// Node are the facts of the node that a worker needs. They may change while it runs.
type Node interface {
	// HostIPs are the node's addresses, primary first.
	HostIPs() []string
	// RuntimeName is the prefix of container IDs.
	RuntimeName() string
	// RecursiveReadOnly reports whether the pod's runtime handler can mount read-only recursively.
	RecursiveReadOnly(pod *corev1.Pod) bool
	// MaxBackoff caps the crash back-off (KEP-5593).
	MaxBackoff() time.Duration
	// NetworkProblem is why pods can't have a network; empty where they can.
	NetworkProblem() string
}
