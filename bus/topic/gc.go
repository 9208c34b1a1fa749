package topic

import "time"

// ReasonExhausted is the reason of a pod that is rejected because its volumes can't be attached, the kubelet's.
const ReasonExhausted = "VolumeAttachmentLimitExceeded"

// Eviction is the request of pod.evict.
type Eviction struct {
	Ref
	// Reason and Message are the pod's in its Failed status, such as Evicted.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Disruption is the reason of the DisruptionTarget condition (KEP-3329); empty for none.
	Disruption string `json:"disruption,omitempty"`
	// GracePeriodSeconds bounds the pod's own grace period; absent leaves it.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// EvictionReply answers pod.evict.
type EvictionReply struct {
	// Ending is true where the pod was ending already: the eviction changes nothing but shortens its grace period.
	Ending bool `json:"ending,omitempty"`
	// Ended is true where nothing of the pod was left to end: the eviction changes nothing at all.
	Ended bool `json:"ended,omitempty"`
}

// Action is what gc does, or would do.
type Action string

// The actions of gc.
const (
	ActionRemoveContainer Action = "remove container"
	ActionRemoveSandbox   Action = "remove sandbox"
	ActionRemoveImage     Action = "remove image"
	ActionRemoveLog       Action = "remove log"
	ActionRotateLog       Action = "rotate log"
	ActionEvict           Action = "evict pod"
	// ActionKeep leaves something alone that one would expect to go; the reason says why.
	ActionKeep Action = "keep"
)

// Decision is the payload of gc.decision: one thing and what is done with it.
type Decision struct {
	Action Action `json:"action"`
	// Object is what it is done to: a container ID, an image reference, a path, or namespace/name of a pod.
	Object string `json:"object"`
	// Pod is the pod it belongs to, where it belongs to one.
	Pod *Ref `json:"pod,omitempty"`
	// Reason says why, with the figures that decided it.
	Reason string `json:"reason"`
	// FreedBytes is what it frees, where that is known.
	FreedBytes uint64 `json:"freedBytes,omitempty"`
	// Error is set where it was tried and failed.
	Error string    `json:"error,omitempty"`
	At    time.Time `json:"at"`
}

// GCPlanRequest is the request of gc.plan.
type GCPlanRequest struct {
	// Images asks for what is removed when all unused images are to go, as under disk pressure.
	Images bool `json:"images,omitempty"`
}

// GCPlanReply answers gc.plan.
type GCPlanReply struct {
	Decisions []Decision `json:"decisions"`
	// Waiting says why nothing may be removed at this moment, such as pod sources that have not delivered.
	Waiting string `json:"waiting,omitempty"`
}
