package podstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The mode of a mount's status is what it is, never what was asked for.
func TestRecursiveReadOnlyMounts(t *testing.T) {
	possible, enabled, disabled := corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled,
		corev1.RecursiveReadOnlyDisabled
	for _, v := range []struct {
		asked     *corev1.RecursiveReadOnlyMode
		supported bool
		want      corev1.RecursiveReadOnlyMode
	}{
		{nil, true, disabled},
		{&disabled, true, disabled},
		{&possible, true, enabled},
		{&possible, false, disabled},
		{&enabled, true, enabled},
	} {
		c := &corev1.Container{VolumeMounts: []corev1.VolumeMount{{
			Name: "v", MountPath: "/v", ReadOnly: true,
			RecursiveReadOnly: v.asked,
		}}}
		if got := mounts(c, v.supported)[0].RecursiveReadOnly; got == nil || *got != v.want {
			t.Errorf("asked for %v, supported %v: got %v, want %s", v.asked, v.supported, got, v.want)
		}
	}
	if got := mounts(&corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v"}}},
		true)[0].RecursiveReadOnly; got != nil {
		t.Errorf("got %s for a mount that is written to", *got)
	}
}
