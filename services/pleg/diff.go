package pleg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
)

// Diff describes what has changed from one observation of a pod to the next, whenever they were made. It returns
// nothing if they are equal, and at least one line if they differ. The lines are for logs.
func Diff(old, now topic.PodObservation) []string {
	old.At, now.At = time.Time{}, time.Time{}
	old.Uptime, now.Uptime = 0, 0
	if equal(old, now) {
		return nil
	}
	changes := slices.Concat(diffSandboxes(old.Sandboxes, now.Sandboxes), diffContainers(old.Containers, now.Containers))
	for _, text := range now.Errors {
		if !slices.Contains(old.Errors, text) {
			changes = append(changes, "can't be inspected: "+text)
		}
	}
	if len(changes) == 0 {
		changes = append(changes, "details")
	}
	return changes
}

// equal compares what readers get: the JSON.
func equal(a, b topic.PodObservation) bool {
	left, leftErr := json.Marshal(a)
	right, rightErr := json.Marshal(b)
	return leftErr == nil && rightErr == nil && bytes.Equal(left, right)
}

func diffSandboxes(old, now []topic.Sandbox) []string {
	var changes []string
	before := map[string]topic.Sandbox{}
	for _, sandbox := range old {
		before[sandbox.ID] = sandbox
	}
	for _, sandbox := range now {
		was, known := before[sandbox.ID]
		delete(before, sandbox.ID)
		switch {
		case !known:
			changes = append(changes, fmt.Sprintf("sandbox %s: %s", short(sandbox.ID), readiness(sandbox)))
		case was.Ready != sandbox.Ready:
			changes = append(changes, fmt.Sprintf("sandbox %s: %s to %s", short(sandbox.ID), readiness(was), readiness(sandbox)))
		case !slices.Equal(was.IPs, sandbox.IPs):
			changes = append(changes, fmt.Sprintf("sandbox %s: addresses %v to %v", short(sandbox.ID), was.IPs, sandbox.IPs))
		}
	}
	for _, sandbox := range old {
		if _, gone := before[sandbox.ID]; gone {
			changes = append(changes, fmt.Sprintf("sandbox %s: removed", short(sandbox.ID)))
		}
	}
	return changes
}

func diffContainers(old, now []topic.Container) []string {
	var changes []string
	before := map[string]topic.Container{}
	for _, container := range old {
		before[container.ID] = container
	}
	for _, container := range now {
		was, known := before[container.ID]
		delete(before, container.ID)
		switch {
		case !known:
			changes = append(changes, fmt.Sprintf("container %s %s: %s", container.Name, short(container.ID),
				condition(container)))
		case was.State != container.State:
			changes = append(changes, fmt.Sprintf("container %s %s: %s to %s", container.Name, short(container.ID), was.State,
				condition(container)))
		}
	}
	for _, container := range old {
		if _, gone := before[container.ID]; gone {
			changes = append(changes, fmt.Sprintf("container %s %s: removed", container.Name, short(container.ID)))
		}
	}
	return changes
}

func readiness(sandbox topic.Sandbox) string {
	if sandbox.Ready {
		return "ready"
	}
	return "not ready"
}

func condition(container topic.Container) string {
	if container.State != topic.ContainerExited {
		return string(container.State)
	}
	return fmt.Sprintf("exited with %d (%s)", container.ExitCode, container.Reason)
}

// short is as much of an ID as people read.
func short(id string) string { return id[:min(len(id), 13)] }

// empty reports whether the runtime has nothing of the pod.
func empty(seen topic.PodObservation) bool {
	return len(seen.Sandboxes) == 0 && len(seen.Containers) == 0 && seen.Complete()
}
