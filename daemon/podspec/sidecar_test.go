package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestIsSidecar(t *testing.T) {
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	for policy, want := range map[*corev1.ContainerRestartPolicy]bool{nil: false, &always: true, &never: false} {
		if IsSidecar(&corev1.Container{RestartPolicy: policy}) != want {
			t.Errorf("policy %v is a sidecar: %t", policy, !want)
		}
	}
}
