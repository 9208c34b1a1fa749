package allocation

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// Message is the message of an Event about a resize, as the kubelet has it: what happened and, in JSON, the resources
// of the pod's containers.
func Message(what string, pod *corev1.Pod, generation int64, problem string) string {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	list := func(containers []corev1.Container) (out []container) {
		for i := range containers {
			out = append(out, container{containers[i].Name, containers[i].Resources})
		}
		return out
	}
	summary, err := json.Marshal(struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{list(pod.Spec.InitContainers), list(pod.Spec.Containers), generation, problem})
	if err != nil {
		return what // a quantity that can't be written has no place in a pod that was decoded
	}
	return what + ": " + string(summary)
}
