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
