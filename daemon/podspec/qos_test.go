package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The classes are those of the rule in the documentation of the API (PodStatus.qosClass).
func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				l[name] = resource.MustParse(text)
			}
		}
		return l
	}
	asks := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	full, none := asks(list("1", "1Gi"), list("1000m", "1Gi")), asks(nil, nil)
	pages := asks(corev1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}, nil)
	const (
		guaranteed, burstable = corev1.PodQOSGuaranteed, corev1.PodQOSBurstable
		bestEffort            = corev1.PodQOSBestEffort
	)
	type containers = []corev1.Container
	for name, c := range map[string]struct {
		init, main containers
		pod        *corev1.ResourceRequirements
		status     corev1.PodQOSClass
		want       corev1.PodQOSClass
	}{
		"equal requests and limits":        {main: containers{full, full}, want: guaranteed},
		"nothing":                          {main: containers{none}, want: bestEffort},
		"no containers":                    {want: bestEffort},
		"zero":                             {main: containers{asks(list("0", "0"), nil)}, want: bestEffort},
		"huge pages":                       {main: containers{pages}, want: bestEffort},
		"requests only":                    {main: containers{asks(list("1", ""), nil)}, want: burstable},
		"no memory":                        {main: containers{asks(list("1", ""), list("1", ""))}, want: burstable},
		"less requested than the limits":   {main: containers{asks(list("1", "1Gi"), list("2", "1Gi"))}, want: burstable},
		"one of two":                       {main: containers{full, none}, want: burstable},
		"an init container with nothing":   {init: containers{none}, main: containers{full}, want: burstable},
		"by the API server":                {main: containers{none}, status: guaranteed, want: guaranteed},
		"of the pod as a whole":            {main: containers{none}, pod: &full.Resources, want: guaranteed},
		"of the pod as a whole, and empty": {main: containers{full}, pod: &corev1.ResourceRequirements{}, want: bestEffort},
	} {
		pod := &corev1.Pod{
			Spec:   corev1.PodSpec{InitContainers: c.init, Containers: c.main, Resources: c.pod},
			Status: corev1.PodStatus{QOSClass: c.status},
		}
		if got := QOSClass(pod); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
