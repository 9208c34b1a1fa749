package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestContainers(t *testing.T) {
	spec := &corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "b"}, {Name: "c"}},
		InitContainers: []corev1.Container{{Name: "a"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d"}},
		},
	}
	for most := range 5 {
		var names []string
		for c := range Containers(spec) {
			if len(names) == most {
				break
			}
			names = append(names, c.Name)
			c.Image = "seen"
		}
		if want := []string{"a", "b", "c", "d"}[:most]; !slices.Equal(names, want) {
			t.Errorf("%v, want %v", names, want)
		}
	}
	if spec.EphemeralContainers[0].Image != "seen" || spec.Containers[1].Image != "seen" {
		t.Errorf("the containers are copies: %+v", spec)
	}
	if n := len(slices.Collect(InitAndMain(spec))); n != 3 {
		t.Errorf("%d init containers and containers, want 3", n)
	}
}
