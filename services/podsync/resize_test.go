package podsync

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// asking is the pod asking for other CPU, of the generation.
func asking(p *corev1.Pod, cpu string, generation int64) *corev1.Pod {
	p = requesting(p.DeepCopy(), cpu)
	p.Generation = generation
	return p
}

// resizeOf is what the pod holds, and the condition of a resize that waits.
func (b *bed) resizeOf(uid string) (held string, pending *corev1.PodCondition) {
	b.t.Helper()
	s, _ := get(b, topic.StatusPatch, uid)
	if len(s.Status.ContainerStatuses) > 0 {
		held = s.Status.ContainerStatuses[0].AllocatedResources.Cpu().String()
	}
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == corev1.PodResizePending {
			pending = &s.Status.Conditions[i]
		}
	}
	return held, pending
}

// What a pod holds is known after a reboot too, when the bus is empty, from its status at the API server. A resize that
// was asked for meanwhile is judged as any other.
func TestAResizeDuringARebootIsJudged(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		grown := asking(pod("grown", "u1"), "5", 2)
		held := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		grown.Status.Phase = corev1.PodRunning
		grown.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "app", AllocatedResources: held, Resources: &corev1.ResourceRequirements{Requests: held},
		}}
		b.deliver(fromAPI, grown)
		b.wantRunning("grown")
		if held, pending := b.resizeOf("u1"); held != "1" || pending == nil {
			t.Errorf("holds %s, condition %+v; want 1 and a resize that waits: the node hasn't so much", held, pending)
		}
	})
}

// A resize waits while the node lacks what it takes, and a restart of podsync, and is met when another pod has gone.
func TestAResizeWaitsForItsTurn(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(110)
		first, second := asking(pod("first", "u1"), "1", 1), asking(pod("second", "u2"), "800m", 1)
		b.deliver(fromAPI, first, second)
		b.wantRunning("first", "second")
		first = asking(first, "1500m", 2)
		b.deliver(fromAPI, first, second)
		waits := func() {
			t.Helper()
			held, pending := b.resizeOf("u1")
			if held != "1" || pending == nil || pending.Reason != corev1.PodReasonDeferred ||
				!strings.Contains(pending.Message, "cpu") || pending.ObservedGeneration != 2 {
				t.Errorf("holds %s, condition %+v; want 1 and a resize that is put off", held, pending)
			}
		}
		waits()
		if e := b.event("ResizeDeferred"); e.Name != "first" ||
			!strings.HasPrefix(e.Message, `Pod resize Deferred: {"containers":[{"name":"app"`) {
			t.Errorf("Event %+v", e)
		}
		stop()
		b.mu.Lock()
		b.events = nil
		b.mu.Unlock()
		b.start(fromAPI)
		b.deliver(fromAPI, first, second)
		b.settle()
		waits()
		if e := b.event("ResizeDeferred"); e.Name != "" {
			t.Errorf("after a restart there is again the Event %+v", e)
		}

		// The smaller request of another pod is met at once, and doesn't take what it holds from the one that waits.
		second = asking(second, "400m", 2)
		b.deliver(fromAPI, first, second)
		if held, pending := b.resizeOf("u2"); held != "400m" || pending != nil {
			t.Errorf("holds %s, condition %+v; want 400m", held, pending)
		}
		b.settle()
		if held, pending := b.resizeOf("u1"); held != "1500m" || pending != nil {
			t.Errorf("holds %s, condition %+v; want 1500m", held, pending)
		}
		if n := b.fake.Calls("UpdateContainerResources"); n != 2 {
			t.Errorf("%d containers were resized, want 2", n)
		}
		if started, done := b.event("ResizeStarted"), b.event("ResizeCompleted"); started.Name == "" || done.Name == "" {
			t.Errorf("Events %+v, %+v; want both", started, done)
		}
	})
}

// A guaranteed pod under the static policy keeps what it has, and is told why; what the node has doesn't matter.
func TestAResizeUnderAStaticPolicyIsInfeasible(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.configure = func(c *config.Config) { c.Kubelet.CPUManagerPolicy = "static" }
		b.start(fromAPI)
		b.node(110)
		guaranteed := func(cpu string, generation int64) *corev1.Pod {
			p := asking(pod("alone", "u1"), cpu, generation)
			r := &p.Spec.Containers[0].Resources
			r.Requests[corev1.ResourceMemory] = resource.MustParse("100Mi")
			r.Limits = r.Requests
			return p
		}
		b.deliver(fromAPI, guaranteed("1", 1))
		set(b, topic.ResourcesOfNode, "", topic.NodeResources{SharedCPUs: "0"})
		set(b, topic.PodAllocation, "u1", topic.Allocation{
			Ref: topic.Ref{Namespace: "default", Name: "alone", UID: "u1"}, Phase: topic.Allocated,
		})
		b.wantRunning("alone")
		b.deliver(fromAPI, guaranteed("2", 2))
		held, pending := b.resizeOf("u1")
		const why = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
		if held != "1" || pending == nil || pending.Reason != corev1.PodReasonInfeasible || pending.Message != why {
			t.Errorf("holds %s, condition %+v", held, pending)
		}
		if e := b.event("ResizeInfeasible"); e.Name != "alone" || !strings.Contains(e.Message, "CPU Manager policy") {
			t.Errorf("Event %+v", e)
		}
		b.deliver(fromAPI, guaranteed("2", 2))
		b.metrics(map[string]float64{
			"pod_infeasible_resizes_total{reason_detail=guaranteed_pod_cpu_manager_static_policy}": 1,
		})
		if n := b.fake.Calls("UpdateContainerResources"); n != 1 {
			t.Errorf("its container was changed %d times, want once, for its CPUs", n)
		}
	})
}

// The API server refuses a change that needs a feature which the node hasn't. Where one comes nevertheless, from an
// older API server or a manifest, the user is told once.
func TestAChangeThatNeedsAFeatureHasAnEvent(t *testing.T) {
	const reason = "FailedNodeDeclaredFeaturesCheck"
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(110)
		plain, changed := asking(pod("plain", "u1"), "1", 1), asking(pod("plain", "u1"), "1500m", 2)
		b.deliver(fromAPI, plain)
		b.deliver(fromAPI, changed)
		if e := b.event(reason); e.Reason != "" {
			t.Errorf("a container is resized, and there is the Event %+v", e)
		}
		changed = changed.DeepCopy()
		changed.Generation, changed.Spec.Resources = 3, changed.Spec.Containers[0].Resources.DeepCopy()
		b.deliver(fromAPI, changed)
		const why = "Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling"
		if e := b.event(reason); e.Name != "plain" || e.Type != corev1.EventTypeWarning || e.Message != why {
			t.Errorf("Event %+v", e)
		}
		b.wantRunning("plain")
		b.mu.Lock()
		b.events = nil
		b.mu.Unlock()
		stop()
		b.start(fromAPI)
		b.deliver(fromAPI, changed)
		b.deliver(fromAPI, changed.DeepCopy())
		if e := b.event(reason); e.Reason != "" {
			t.Errorf("after a restart there is the Event %+v", e)
		}
	})
}
