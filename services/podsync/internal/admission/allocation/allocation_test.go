package allocation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func pod(requests, limits string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: list(requests),
			Limits:   list(limits),
		}}},
	}}
}

func TestKeep(t *testing.T) {
	grown := pod("2", "4")
	grown.Generation = 2
	podLevel := pod("1", "2")
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Requests: list("3")}
	waiting := pod("2", "4")
	waiting.Status = corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", AllocatedResources: list("1"), Resources: &corev1.ResourceRequirements{
				Requests: list("1"),
				Limits:   list("2"),
			},
		}},
	}
	asked := waiting.DeepCopy()
	asked.Status.Conditions = nil
	fixed := pod("3", "3") // 1 was allocated, and the container still had 2 of before
	fixed.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", AllocatedResources: list("1"),
		Resources: &corev1.ResourceRequirements{Requests: list("2"), Limits: list("2")},
	}}
	if kept, resize := Keep(fixed, nil); !resize || kept.Spec.Containers[0].Resources.Limits.Cpu().Value() != 1 {
		t.Errorf("it keeps %v, %v; want a limit as the request", kept.Spec.Containers[0].Resources, resize)
	}
	done := pod("1", "2")
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", AllocatedResources: list("1"), // the runtime has rounded the limit
		Resources: &corev1.ResourceRequirements{Requests: list("1"), Limits: list("1990m")},
	}}
	for name, v := range map[string]struct {
		pod, before *corev1.Pod
		resize      bool
	}{
		"the same in other words":          {pod("1000m", "2"), pod("1", "2"), false},
		"not known before":                 {pod("1", "2"), nil, false},
		"grown":                            {grown, pod("1", "2"), true},
		"grown as a whole":                 {podLevel, pod("1", "2"), true},
		"waiting already, says the status": {waiting, nil, true},
		"asked for while no agent ran":     {asked, nil, true},
		"what the status has, rounded":     {done, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			kept, resize := Keep(v.pod, v.before)
			r := kept.Spec.Containers[0].Resources
			if resize != v.resize || r.Requests.Cpu().Value() != 1 || r.Limits.Cpu().Value() != 2 || kept.Spec.Resources != nil {
				t.Errorf("got %v, resources %v, %v", resize, r, kept.Spec.Resources)
			}
			if kept.Generation != v.pod.Generation {
				t.Error("anything but the resources must be the new pod's")
			}
		})
	}
	if grown.Spec.Containers[0].Resources.Requests.Cpu().Value() != 2 {
		t.Error("the argument was changed")
	}
}
