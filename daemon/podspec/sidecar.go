package podspec

import corev1 "k8s.io/api/core/v1"

// IsSidecar reports whether an init container is a sidecar: one that runs next to the main containers (KEP-753). It is
// for init containers only, since the policy has another meaning in a main container (KEP-5307).
func IsSidecar(init *corev1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
