package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// sizes keeps what containers were given, and how often the pod's limits were set.
type sizes struct {
	Sizes
	noCgroups
	given   []*runtimeapi.LinuxContainerResources
	updates int
	// asked is the memory that the runtime was asked for, for the whole pod; refuses is its answer.
	asked   int64
	refuses error
}

func (s *sizes) UpdatePodSandboxResources(_ context.Context, _ string,
	_, all *runtimeapi.LinuxContainerResources,
) error {
	s.asked = all.GetMemoryLimitInBytes()
	return s.refuses
}

func (s *sizes) UpdateContainerResources(_ context.Context, _ string, r *runtimeapi.LinuxContainerResources) error {
	s.given = append(s.given, r)
	return nil
}

func (s *sizes) Update(*corev1.Pod) error {
	s.updates++
	return nil
}

// quotaNode has a CFS quota.
type quotaNode struct{ plainNode }

func (n quotaNode) CRI() *criconfig.Node {
	node := n.plainNode.CRI()
	node.CPUCFSQuota, node.CPUCFSQuotaPeriod = true, 100*time.Millisecond
	return node
}

// Containers with CPUs of their own have no quota: neither after a resize, nor as long as they have these CPUs.
// Afterwards they have one again, and so has their pod.
func TestQuotaFollowsTheCPUs(t *testing.T) {
	asking := func(request, limit string) corev1.ResourceRequirements {
		list := func(cpu string) corev1.ResourceList {
			return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}
		}
		return corev1.ResourceRequirements{Requests: list(request), Limits: list(limit)}
	}
	whole, shared := asking("2", "2"), asking("1", "2")
	resized := map[string]corev1.ResourceRequirements{"c1": whole}
	set := plan.Action{Kind: plan.SetCPUs, Container: "app", ID: "c1", Cpuset: plan.Cpuset{CPUs: "0-3"}}
	for name, c := range map[string]struct {
		asks    corev1.ResourceRequirements
		own     string
		before  map[string]corev1.ResourceRequirements
		action  plan.Action
		quota   int64
		updates int
	}{
		"a resize of one with CPUs":          {whole, "1-2", resized, plan.Action{Kind: plan.ResizePod}, -1, 1},
		"a resize of one without":            {whole, "", resized, plan.Action{Kind: plan.ResizePod}, 200000, 1},
		"its CPUs":                           {whole, "1-2", nil, set, -1, 1},
		"it has lost them":                   {whole, "", nil, set, 200000, 1},
		"it has lost them, and is resized":   {whole, "", resized, set, 0, 0},
		"it has lost them, another is":       {whole, "", map[string]corev1.ResourceRequirements{"c2": {}}, set, 200000, 0},
		"one that never has CPUs of its own": {shared, "", nil, set, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sizes{}
			e, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) {
				d.Node, d.Runtime.Sizes, d.Pods.Cgroups = quotaNode{plainNode{t.TempDir()}}, s, s
			})
			pod := hooked()
			pod.Spec.Containers[0].Resources = c.asks
			out := e.Do(t.Context(), worker.Snapshot{
				Pod: pod, Before: c.before,
				Obs: topic.PodObservation{Containers: []topic.Container{
					{ID: "c1", Name: "app", State: topic.ContainerRunning},
				}},
				Allocation: topic.Allocation{Containers: map[string]topic.ContainerAllocation{"app": {CPUs: c.own}}},
			}, c.action)
			var quotas []int64
			for _, r := range s.given {
				quotas = append(quotas, r.CpuQuota)
			}
			if out.Err != nil || !slices.Equal(quotas, []int64{c.quota}) || s.updates != c.updates {
				t.Errorf("quotas %v, %d updates of the pod, error %v; want %d, %d", quotas, s.updates, out.Err, c.quota, c.updates)
			}
		})
	}
}

// The runtime hears of the pod's new size first, and may refuse it: then nothing has changed.
func TestTheRuntimeMayRefuseAResize(t *testing.T) {
	pod := hooked()
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
	for _, refuses := range []error{nil, errors.New("the balloon is full")} {
		s := &sizes{refuses: refuses}
		e, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) {
			d.Node, d.Runtime.Sizes, d.Pods.Cgroups = plainNode{t.TempDir()}, s, s
		})
		out := e.Do(t.Context(), worker.Snapshot{
			Pod:    pod,
			Before: map[string]corev1.ResourceRequirements{"c1": pod.Spec.Containers[0].Resources},
			Obs: topic.PodObservation{
				Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true}},
				Containers: []topic.Container{{ID: "c1", Name: "app", SandboxID: "s", State: topic.ContainerRunning}},
			},
		}, plan.Action{Kind: plan.ResizePod})
		refused := out.Err != nil &&
			strings.Contains(out.Err.Error(), "the runtime refuses the pod's new size: the balloon is full")
		if s.asked != 1<<30 || refused != (refuses != nil) || (len(s.given) == 0) != refused || (s.updates == 0) != refused {
			t.Errorf("asked for %d bytes, gave %v with %d updates: %v", s.asked, s.given, s.updates, out.Err)
		}
	}
}
