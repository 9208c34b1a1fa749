package resourceref

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestALimitThatIsNotSet(t *testing.T) {
	list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	ref := &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}
	node := list("4")
	for name, v := range map[string]struct {
		pod, container corev1.ResourceList
		want           string
	}{
		"the container's own": {list("2"), list("1"), "1000"},
		"else the pod's":      {list("2"), nil, "2000"},
		"else the node's":     {nil, nil, "4000"},
	} {
		c := corev1.Container{Name: "app", Resources: corev1.ResourceRequirements{Limits: v.container}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			Containers: []corev1.Container{c},
			Resources:  &corev1.ResourceRequirements{Limits: v.pod},
		}}
		if got, err := Value(ref, pod, &c, node); err != nil || got != v.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, v.want)
		}
		if _, err := Value(ref, pod, &c, nil); errors.Is(err, ErrNoAllocatable) != (v.pod == nil && v.container == nil) {
			t.Errorf("%s, without the node's allocatable: %v", name, err)
		}
	}
}
