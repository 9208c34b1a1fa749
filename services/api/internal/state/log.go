package state

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LogContainer is the full ID, with the runtime's name before it, of the container whose log is asked for. Errors are
// in the kubelet's words, which kubectl shows.
func (p Pod) LogContainer(name string, previous bool) (id string, err error) {
	all := slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses)
	i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return "", fmt.Errorf("container %q in pod %q is not available", name, p.Name)
	}
	status := all[i]
	last := terminatedID(status.LastTerminationState)
	switch state := status.State; {
	case previous:
		if last == "" {
			return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
		}
		return last, nil
	case state.Running != nil:
		return status.ContainerID, nil
	case terminatedID(state) != "":
		return terminatedID(state), nil
	case last != "":
		return last, nil
	case state.Terminated != nil || status.LastTerminationState.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, p.Name)
	case state.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.Name, waiting(state.Waiting.Reason))
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, p.Name)
}

func terminatedID(state corev1.ContainerState) string {
	if state.Terminated == nil {
		return ""
	}
	return state.Terminated.ContainerID
}

func waiting(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

// BareID is a container's ID without the runtime's name.
func BareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}
