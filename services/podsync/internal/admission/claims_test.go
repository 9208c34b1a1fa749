package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What a claim gives to a pod is not taken from the node's extended resources, by it or by others.
func TestExtendedResourcesOfAClaimDoNotCount(t *testing.T) {
	const gpu = "vendor.example/gpu"
	pod := func(name string, claim bool) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{gpu: resource.MustParse("2"), "cpu": resource.MustParse("1")},
			},
		}}}}
		p.Name = name
		if claim {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "c", RequestMappings: []corev1.ContainerExtendedResourceRequest{
					{ContainerName: "app", ResourceName: gpu, RequestName: "r"},
				},
			}
		}
		return p
	}
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		gpu: resource.MustParse("2"), "cpu": resource.MustParse("2"), "pods": resource.MustParse("10"),
	}}}
	plain, claiming := pod("plain", false), pod("claiming", true)
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		others []Held
		short  int
	}{
		"the node has them":           {pod: plain},
		"a claim has them":            {pod: claiming, others: []Held{Hold(plain)}},
		"another one's are a claim's": {pod: plain, others: []Held{Hold(claiming)}},
		"both are the node's":         {pod: plain, others: []Held{Hold(plain)}, short: 1},
	} {
		if got := shortages(c.pod, node, c.others, Facts{}); len(got) != c.short {
			t.Errorf("%s: the node lacks %+v", name, got)
		}
	}
}
