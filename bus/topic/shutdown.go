package topic

import "time"

// ShutdownTrigger is what began a shutdown.
type ShutdownTrigger string

const (
	// ByLogind is a shutdown that logind has announced (PrepareForShutdown).
	ByLogind ShutdownTrigger = "logind"
	// ByCommand is one that kubelot shutdown asked for.
	ByCommand ShutdownTrigger = "command"
)

// ReasonShutdown is the reason in the status of a pod that ended because its node shut down.
const ReasonShutdown = "Terminated"

// Shutdown is the payload of node.shutdown.
type Shutdown struct {
	// Active is true while the node shuts down, and after that until the machine is off or it was cancelled: no pod is
	// admitted, and the node isn't Ready.
	Active  bool            `json:"active"`
	Trigger ShutdownTrigger `json:"trigger,omitempty"`
	// BootID is the boot of the machine that it belongs to.
	BootID  string    `json:"bootID,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// Groups are the pods' groups in the order in which they end.
	Groups []ShutdownGroup `json:"groups,omitempty"`
	// Group is the index of the group that ends now, or the number of groups when all have ended. GroupStarted is since
	// when.
	Group        int       `json:"group,omitempty"`
	GroupStarted time.Time `json:"groupStarted,omitzero"`
	// Ended is when the last group had ended. Its pods' statuses may not be written yet.
	Ended time.Time `json:"ended,omitzero"`
	// Done is when the shutdown waited for nothing more: the machine may shut down.
	Done time.Time `json:"done,omitzero"`
	// Message says what was left when it was done, and why; empty if nothing.
	Message string `json:"message,omitempty"`
}

// ShutdownGroup are the pods that end together.
type ShutdownGroup struct {
	// Priority is the least priority of the group's pods. Those below the lowest group belong to it too.
	Priority int32 `json:"priority"`
	// GracePeriodSeconds is what the whole group has.
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
}

// ShutdownGroups are those of a shutdown that has one time for all pods, the last part of which is for critical ones.
func ShutdownGroups(whole, critical time.Duration) []ShutdownGroup {
	return []ShutdownGroup{
		{Priority: 0, GracePeriodSeconds: int64((whole - critical) / time.Second)},
		{Priority: SystemCritical, GracePeriodSeconds: int64(critical / time.Second)},
	}
}

// ShutdownAction is what a shutdown.request asks for.
type ShutdownAction string

const (
	// StartShutdown begins the shutdown, or does nothing if it is active.
	StartShutdown ShutdownAction = "start"
	// CancelShutdown ends it: pods are admitted again. Pods that have ended stay ended.
	CancelShutdown ShutdownAction = "cancel"
)

// ShutdownRequest is the request of shutdown.request.
type ShutdownRequest struct {
	Action ShutdownAction `json:"action"`
	// Groups replace the configured ones. Without both, a start is refused.
	Groups []ShutdownGroup `json:"groups,omitempty"`
}

// UnwrittenRequest is the request of status.unwritten.
type UnwrittenRequest struct {
	// UIDs are the pods that are asked about, a static pod by the UID that is derived from its manifest.
	UIDs []string `json:"uids"`
}

// UnwrittenReply answers status.unwritten.
type UnwrittenReply struct {
	// UIDs are the pods asked about that have not ended, or whose last status the API server doesn't have.
	UIDs []string `json:"uids,omitempty"`
	// Outage says why the API server can't be reached; empty if it answers.
	Outage string `json:"outage,omitempty"`
}
