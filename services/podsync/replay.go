package podsync

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/source"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// What follows is podsync's deciding without its doing, for the check of recordings (docs/adr/0031).

// The inputs of a plan, and what comes of it.
type (
	// PlanWish is what a pod should be.
	PlanWish = plan.Desired
	// PlanFacts are what a worker knows besides.
	PlanFacts = plan.Facts
	// PlanContainer is what it knows of a container.
	PlanContainer = plan.ContainerFacts
	// PlanRun is what it knows of one of a container's runs.
	PlanRun = plan.RunFacts
	// PlanFailure is an action that failed.
	PlanFailure = plan.Failure
	// Plan is what a worker does now and what it waits for.
	Plan = plan.Plan
	// PlanAction is one of the things that it does.
	PlanAction = plan.Action
	// StatusInput is what a pod's status is computed from.
	StatusInput = podstatus.Input
	// ActionKind is what an action does.
	ActionKind = plan.Kind
)

// The actions that a plan decides about alone. Others depend on what only a worker knows.
const (
	ActionCreateSandbox   = plan.CreateSandbox
	ActionStopSandbox     = plan.StopSandbox
	ActionEnsureImage     = plan.EnsureImage
	ActionStartContainer  = plan.StartContainer
	ActionStopContainer   = plan.StopContainer
	ActionRunPreStop      = plan.RunPreStop
	ActionRemoveContainer = plan.RemoveContainer
	ActionResizePod       = plan.ResizePod
)

// MakePlan decides what a pod's worker does next.
func MakePlan(d PlanWish, seen topic.PodObservation, f PlanFacts, now time.Time) Plan {
	return plan.Make(d, seen, f, now)
}

// ComputeStatus computes a pod's status.
func ComputeStatus(in StatusInput) corev1.PodStatus { return podstatus.Compute(in) }

// Wanted are the UIDs of the pods that are wanted where the sources have delivered these.
func Wanted(delivered map[topic.Source][]*corev1.Pod) []string {
	merge := source.NewMerge(slices.Collect(maps.Keys(delivered))...)
	for name, pods := range delivered {
		merge.Set(source.Set{Source: name, Pods: pods}, time.Time{})
	}
	var uids []string
	for _, p := range merge.Desired().Pods {
		uids = append(uids, string(p.Pod.UID))
	}
	return uids
}
