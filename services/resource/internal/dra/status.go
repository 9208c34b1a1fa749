package dra

import (
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/claims"
)

// The reasons of a Status and of Events.
const (
	// reasonPreparing is of a pod whose claims are being prepared.
	reasonPreparing = "PreparingDynamicResources"
	// reasonUnpreparing is of a pod that has ended and whose claims are being unprepared.
	reasonUnpreparing = "UnpreparingDynamicResources"
	// reasonPrepareFailed is of a pod whose claims can't be prepared, for the time being.
	reasonPrepareFailed = "FailedPrepareDynamicResources"
	// reasonUnprepareFailed is of a pod that has ended and can't give its claims back, for the time being.
	reasonUnprepareFailed = "FailedUnprepareDynamicResources"
)

// Status is what a pod has of its claims. It is never AllocationRefused: what fails now may succeed later.
type Status struct {
	// Phase of a pod that has ended stays what it was until it is AllocationReleased.
	Phase topic.AllocationPhase
	// Reason and Message say what the pod waits for; also one that has ended.
	Reason, Message string
	// Containers is what containers get, by their names: CDI and Devices are set.
	Containers map[string]topic.ContainerAllocation
	// Uses are the claims that containers use, by the containers' names, for the PodResources API.
	Uses map[string][]claims.Use
}
