package topic

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Lifecycle is how far a pod's worker is. It never goes backwards.
type Lifecycle string

const (
	// Syncing pods start or run.
	Syncing Lifecycle = "syncing"
	// Terminating pods are being stopped; volumes must stay mounted.
	Terminating Lifecycle = "terminating"
	// Terminated pods have no running container and never will, and their sandboxes are stopped: volumes must be
	// unmounted, and who has given something to the pod takes it back.
	Terminated Lifecycle = "terminated"
)

// SourceAnnotation is the kubelet's annotation with a pod's Source.
const SourceAnnotation = "kubernetes.io/config.source"

// Source is where a pod comes from.
type Source string

const (
	SourceAPI  Source = "api"
	SourceFile Source = "file"
	SourceHTTP Source = "http"
)

// SystemCritical is the least priority of critical pods (API PriorityClass system-cluster-critical).
const SystemCritical = 2_000_000_000

// Ref names a pod.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// RefOf names the pod.
func RefOf(pod *corev1.Pod) Ref {
	return Ref{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

// Pod is the payload of pod.update.
type Pod struct {
	// Pod is the pod as admitted. A static pod has the UID that is derived from its manifest.
	// managedFields are left out, and of the status all but the names of the pod's claims. The resource version is the
	// one that changed the rest of the pod. pod.object has changes of the status alone.
	Pod       *corev1.Pod `json:"pod"`
	Source    Source      `json:"source"`
	Lifecycle Lifecycle   `json:"lifecycle"`
	// Released is true for a terminated pod whose volumes are unmounted and whose cgroup is gone. Its resources are free.
	Released bool `json:"released,omitempty"`
	// Removed is true for a pod that no source wanted any more. It ends for good; one that comes with its UID begins anew.
	Removed bool `json:"removed,omitempty"`
	// GracePeriodSeconds and Deadline bound the termination; set from the moment it begins.
	GracePeriodSeconds *int64     `json:"gracePeriodSeconds,omitempty"`
	Deadline           *time.Time `json:"deadline,omitempty"`
	// FirstSeen is when this node first saw the pod.
	FirstSeen time.Time `json:"firstSeen"`
	// BackoffBase is, by container name, the restart count at which the crash back-off last began. podsync reads it after
	// a restart.
	BackoffBase map[string]int `json:"backoffBase,omitzero"`
	// StartedBefore are the IDs of containers whose startup probe had succeeded when podsync first saw the pod, as its
	// status at the API server said: so it is when a node is taken over from a kubelet, or the bus has lost its state.
	StartedBefore []string `json:"startedBefore,omitempty"`
	// Resize is an in-place resize that was allocated and isn't done yet.
	Resize *Resize `json:"resize,omitempty"`
	// PostStart are the names of containers that are being started and have a postStart hook. They aren't probed before
	// it has ended.
	PostStart []string `json:"postStart,omitempty"`
	// Allocates is true for a pod of which nothing is created before pod.allocation says that it has what it asks for.
	Allocates bool `json:"allocates,omitempty"`
	// Sandboxed is true where Allocates is and a sandbox of the pod is up: what it asks for was made ready before.
	Sandboxed bool `json:"sandboxed,omitempty"`
	// Refused is the reason for which the pod may not run here, as OutOfmemory; empty for one that was admitted.
	Refused string `json:"refused,omitempty"`
}

// Resize is an in-place resize under way (KEP-1287): the pod of the message has the resources that were allocated.
type Resize struct {
	// Generation is the pod's when it was allocated.
	Generation int64 `json:"generation"`
	// Before are the resources that running containers have still, by their ID.
	Before map[string]corev1.ResourceRequirements `json:"before,omitempty"`
	// Error is why it could not be done yet.
	Error string `json:"error,omitempty"`
}

// Static reports whether the pod comes from a manifest and not from the API server.
func (p Pod) Static() bool { return p.Source != SourceAPI }

// APIPod is the payload of pod.object.
type APIPod struct {
	Ref
	ResourceVersion string           `json:"resourceVersion"`
	Status          corev1.PodStatus `json:"status"`
}

// MirrorPod is the payload of pod.mirror.
type MirrorPod struct {
	Ref
	// Hash is the static pod's manifest hash that the mirror pod carries (annotation kubernetes.io/config.mirror).
	Hash string `json:"hash"`
	// Deleting is true once the mirror pod has a deletion timestamp.
	Deleting bool `json:"deleting,omitempty"`
	// ResourceVersion and Status are what the API server has of it; empty from an older podsync that doesn't send them.
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	Status          corev1.PodStatus `json:"status,omitzero"`
}

// Sources is the payload of pod.sources.
type Sources struct {
	// Ready is true once every configured source has delivered its full set of pods.
	Ready bool `json:"ready"`
	// Waiting names the sources that have not.
	Waiting []Source `json:"waiting,omitempty"`
	// Pods are the UIDs of the pods that are wanted at the moment; complete only when Ready. Those of the API server's
	// that came or went just now may be in pod.update only.
	Pods []string `json:"pods,omitempty"`
}

// PodStatus is the payload of status.patch.
type PodStatus struct {
	Ref
	Source Source `json:"source"`
	// Status is the status that follows from spec and runtime. It has no ready and started flags and no conditions
	// that follow from them: the status daemon computes these, see pod.status.
	Status corev1.PodStatus `json:"status"`
	// Finished means: no container runs or ever will, volumes are unmounted and the cgroup is gone. The API object of a
	// pod with a deletion timestamp may go.
	Finished bool `json:"finished,omitempty"`
}

// Merged is the payload of pod.status.
type Merged struct {
	// Ref names the pod as pod.update does: a static pod has the UID that is derived from its manifest.
	Ref
	// ResourceVersion is that of the API object whose status was merged. It is empty for a static pod, and as long as the
	// API server's copy isn't known. A new version alone is no new message.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Status is whole: containers with their ready and started flags, and all conditions.
	Status corev1.PodStatus `json:"status"`
}

// NodeOwned reports whether only the node agent sets the condition. If the agent's status lacks such a condition, the
// pod has none.
func NodeOwned(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled,
		corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting:
		return true
	}
	return false
}

// Step is the payload of podsync.step.
type Step struct {
	Ref
	// Name is what is done, such as "create sandbox", "pull image", "start container", "wait for volumes".
	// It has a JSON name of its own: "name" is the pod's.
	Name      string `json:"step"`
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
	// Phase is "begin" or "end".
	Phase string `json:"phase"`
	// Duration and Error belong to the end.
	Duration time.Duration `json:"durationNanoseconds,omitempty"`
	Error    string        `json:"error,omitempty"`
	At       time.Time     `json:"at"`
	// Span is the ID of the step's span, in hexadecimal digits, and Parent that of the step that it is part of. Only the
	// steps of pods that are traced have a span.
	Span   string `json:"span,omitempty"`
	Parent string `json:"parent,omitempty"`
}

// The phases of a Step.
const (
	StepBegin = "begin"
	StepEnd   = "end"
)

// The reasons of podsync's Events on the Node about manifests. The messages begin with the file, the URL or the pod,
// and a colon. When podsync starts it tells again of the manifests that it can't use.
const (
	ManifestInvalid = "InvalidManifest"
	ManifestUsable  = "ManifestUsable"
)

// Event is the payload of event.<daemon>: a Kubernetes Event.
type Event struct {
	// Kind is "Pod", "Node" or "PersistentVolumeClaim".
	Kind string `json:"kind"`
	Ref
	// FieldPath is the involved object's field path, such as spec.containers{app}.
	FieldPath string `json:"fieldPath,omitempty"`
	// Type is Normal or Warning.
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
	// Annotations are the Event object's, such as those of an eviction.
	Annotations map[string]string `json:"annotations,omitempty"`
}
