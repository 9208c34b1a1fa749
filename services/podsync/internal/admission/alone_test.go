package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The verdicts and words are those of the kubelet's allocation manager.
func TestInfeasible(t *testing.T) {
	const onCPUs = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	const onMemory = `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	const onSwap = "In-place resize of containers with swap is not supported."
	sized := func(cpu, memory, limit string) *corev1.Pod {
		list := func(memory string) corev1.ResourceList {
			return corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			}
		}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Requests: list(memory), Limits: list(limit)},
		}}}}
	}
	restarted := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		}
		return p
	}
	for name, c := range map[string]struct {
		policies     Policies
		held, wanted *corev1.Pod
		swaps        bool
		want, detail string
	}{
		"no policy": {held: sized("1", "1Gi", "1Gi"), wanted: sized("2", "2Gi", "2Gi")},
		"CPUs of its own": {
			policies: Policies{CPU: "static"}, held: sized("1", "1Gi", "1Gi"), wanted: sized("2", "1Gi", "1Gi"),
			want: onCPUs, detail: "guaranteed_pod_cpu_manager_static_policy",
		},
		"memory beside CPUs of its own": {
			policies: Policies{CPU: "static"}, held: sized("1", "1Gi", "1Gi"), wanted: sized("1", "2Gi", "2Gi"),
		},
		"memory of its own": {
			policies: Policies{CPU: "none", Memory: "Static"}, held: sized("1", "1Gi", "1Gi"), wanted: sized("1", "2Gi", "2Gi"),
			want: onMemory, detail: "guaranteed_pod_memory_manager_static_policy",
		},
		"not guaranteed": {
			policies: Policies{CPU: "static", Memory: "Static"}, held: sized("1", "1Gi", "3Gi"),
			wanted: sized("2", "2Gi", "3Gi"),
		},
		"its share of the swap changes": {
			held: sized("1", "1Gi", "3Gi"), wanted: sized("1", "2Gi", "3Gi"), swaps: true, want: onSwap,
			detail: "swap_limitation",
		},
		"a restart changes its share": {
			held: restarted(sized("1", "1Gi", "3Gi")), wanted: restarted(sized("1", "2Gi", "3Gi")), swaps: true,
		},
		"only its CPU changes": {held: sized("1", "1Gi", "3Gi"), wanted: sized("2", "1Gi", "3Gi"), swaps: true},
	} {
		got := c.policies.Infeasible(c.wanted, c.held, func(*corev1.Pod, *corev1.Container) bool { return c.swaps })
		if got == nil {
			got = &Infeasible{}
		}
		if got.Message != c.want || got.Detail != c.detail {
			t.Errorf("%s: %+v, want %q %q", name, *got, c.want, c.detail)
		}
	}
}
