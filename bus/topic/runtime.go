package topic

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodObservation is the payload of pleg.event: a whole pod as the runtime reports it.
type PodObservation struct {
	Ref
	// At is when the reading began: whatever the runtime did before it is in here.
	At time.Time `json:"at"`
	// Uptime is At by the clock that is never set (CLOCK_BOOTTIME); readings are ordered by it.
	Uptime time.Duration `json:"uptimeNanoseconds,omitempty"`
	// Sandboxes and Containers are sorted newest first: by attempt, then by creation time.
	Sandboxes  []Sandbox   `json:"sandboxes"`
	Containers []Container `json:"containers"`
	// Errors names the containers that could not be inspected; they are missing above or out of date.
	Errors []string `json:"errors,omitempty"`
}

// NewerThan reports whether the reading began after the other one. It compares times of day only if one of the readings
// has no uptime.
func (o PodObservation) NewerThan(other PodObservation) bool {
	if o.Uptime > 0 && other.Uptime > 0 {
		return o.Uptime > other.Uptime
	}
	return o.At.After(other.At)
}

// Complete reports whether every sandbox and container of the pod could be inspected.
func (o PodObservation) Complete() bool { return len(o.Errors) == 0 }

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID        string    `json:"id"`
	Attempt   uint32    `json:"attempt"`
	Ready     bool      `json:"ready"`
	CreatedAt time.Time `json:"createdAt"`
	// IPs are the pod's addresses, primary first; empty on the host network.
	IPs []string `json:"ips,omitempty"`
	// NamespaceOptions that matter for a change of the sandbox.
	HostNetwork    bool   `json:"hostNetwork,omitempty"`
	RuntimeHandler string `json:"runtimeHandler,omitempty"`
}

// ContainerState is the runtime's state of a container.
type ContainerState string

const (
	ContainerCreated ContainerState = "created"
	ContainerRunning ContainerState = "running"
	ContainerExited  ContainerState = "exited"
	ContainerUnknown ContainerState = "unknown"
)

// Container is one container.
type Container struct {
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`
	// Name is the container's name in the pod spec.
	Name    string         `json:"name"`
	Attempt uint32         `json:"attempt"`
	State   ContainerState `json:"state"`
	// Image is the reference from the spec, ImageID the runtime's, ImageRef what the status reports (digest).
	Image    string `json:"image"`
	ImageID  string `json:"imageID"`
	ImageRef string `json:"imageRef,omitempty"`

	CreatedAt  time.Time `json:"createdAt"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode"`
	// Reason and Message are the runtime's words, such as OOMKilled.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// LogPath is absolute.
	LogPath string `json:"logPath,omitempty"`
	// Hash, RestartCount and the termination message come from the kubelet's annotations.
	Hash                     string `json:"hash,omitempty"`
	RestartCount             int    `json:"restartCount"`
	TerminationMessagePath   string `json:"terminationMessagePath,omitempty"`
	TerminationMessagePolicy string `json:"terminationMessagePolicy,omitempty"`
	// TerminationMessageFile is the host file behind TerminationMessagePath, if it is mounted.
	TerminationMessageFile string `json:"terminationMessageFile,omitempty"`

	User      *corev1.ContainerUser        `json:"user,omitempty"`
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// StopSignal is the effective stop signal, such as SIGTERM, if the runtime reports it.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Runtime is the payload of node.runtime.
type Runtime struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	APIVersion string `json:"apiVersion"`
	// Reachable is false when the runtime doesn't answer; Message says why.
	Reachable bool   `json:"reachable"`
	Message   string `json:"message,omitempty"`
	// RuntimeReady and NetworkReady are the CRI conditions with their reasons and messages.
	RuntimeReady RuntimeCondition            `json:"runtimeReady"`
	NetworkReady RuntimeCondition            `json:"networkReady"`
	Handlers     []corev1.NodeRuntimeHandler `json:"handlers,omitempty"`
	Features     corev1.NodeFeatures         `json:"features"`
	// CgroupDriver is "systemd" or "cgroupfs"; empty if the runtime doesn't report it.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// EventStream is true while the runtime's container event stream is open.
	EventStream bool `json:"eventStream"`
	// FirstRelist is when pleg had read every pod of the runtime for the first time since its start; zero before. The time
	// of the last relist is a metric (kubelet_pleg_last_seen_seconds): here it would have a node at rest write to the bus,
	// which then loads blocks of 4 MiB. Up to v0.1.0 it was here, hence the name in JSON.
	FirstRelist time.Time `json:"lastRelist"`
	// Images are the node's largest images, at most 50, largest first.
	Images []corev1.ContainerImage `json:"images,omitempty"`
}

// RuntimeCondition is one condition the runtime reports.
type RuntimeCondition struct {
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Probe is the payload of probe.result.
type Probe struct {
	// ContainerID is the CRI id of the container the verdict belongs to.
	ContainerID string `json:"containerID"`
	Success     bool   `json:"success"`
	// Message is the output of the run that decided it, at most 10 KiB.
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// Kinds of probes in the key of probe.result.
const (
	ProbeStartup   = "startup"
	ProbeReadiness = "readiness"
	ProbeLiveness  = "liveness"
)
