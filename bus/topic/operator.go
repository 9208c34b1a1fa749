package topic

import "time"

// Retry is the request of pod.retry.
type Retry struct {
	Ref
	// Container limits it to one container; empty for the whole pod.
	Container string `json:"container,omitempty"`
}

// RetryReply answers pod.retry.
type RetryReply struct {
	// Ended are the back-offs that were ended. It is empty where nothing waited for a next try.
	Ended []Backoff `json:"ended,omitempty"`
}

// Backoff is a wait after a failure.
type Backoff struct {
	// Container is the container that waited; empty for what concerns the whole pod, such as its sandbox.
	Container string `json:"container,omitempty"`
	// Reason is the waiting reason that the pod's status has, or the step that failed. Message says more.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Until is when the next try would have been.
	Until time.Time `json:"until"`
}

// ManifestRequest is the request of manifest.check.
type ManifestRequest struct {
	// File is the manifest's name in the directory of static pods, without the directory. The pod's UID depends on it.
	// It is empty in a question for the directory alone.
	File string `json:"file,omitempty"`
	// Data is the manifest, as it is or would be in the file.
	Data []byte `json:"data,omitempty"`
}

// ManifestReply answers manifest.check.
type ManifestReply struct {
	// Directory is where podsync reads manifests from (staticPodPath).
	Directory string `json:"directory"`
	// Pod is the pod that podsync makes of the manifest, with the node's name as suffix.
	Pod Ref `json:"pod,omitzero"`
	// Warnings are what is odd about the manifest, which is used nevertheless.
	Warnings []string `json:"warnings,omitempty"`
}

// ClaimsRequest is the request of resource.claims.
type ClaimsRequest struct{}

// ClaimsReply answers resource.claims.
type ClaimsReply struct {
	// Claims are those that pods of this node have, or whose drivers have not given them back, sorted by their names.
	Claims []HeldClaim `json:"claims,omitempty"`
}

// HeldClaim is a ResourceClaim (DRA) that the node knows.
type HeldClaim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Pods use it. Of one that is gone only the UID is known.
	Pods []ClaimPod `json:"pods,omitempty"`
	// Drivers are those of its allocation, sorted by their names.
	Drivers []ClaimDriver `json:"drivers,omitempty"`
}

// ClaimPod is a pod that uses a claim.
type ClaimPod struct {
	Ref
	// Ended is true where no container of it runs any more.
	Ended bool `json:"ended,omitempty"`
}

// ClaimDriver is a driver's part in a claim.
type ClaimDriver struct {
	Name string `json:"name"`
	// Standing is idle, unsure or prepared: whether the driver has prepared the claim, as far as the node knows.
	Standing string `json:"standing"`
	// Registered is true where the driver is there to be called.
	Registered bool `json:"registered,omitempty"`
}

// ForgetRequest is the request of resource.forget.
type ForgetRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ForgetReply answers resource.forget.
type ForgetReply struct {
	// Drivers are those that are no longer waited for.
	Drivers []string `json:"drivers"`
}
