package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// resize asks for other resources of the container.
func resize(ns *kit.Namespace, name, container, cpu, memory string) {
	ns.Kubectl("patch", "pod/"+name, "--subresource=resize", "--patch", fmt.Sprintf(
		`{"spec": {"containers": [{"name": %q, "resources": {"requests": {"cpu": %q, "memory": %q}, "limits": {"cpu": %q, "memory": %q}}}]}}`,
		container, cpu, memory, cpu, memory))
}

// resized waits until the container has the resources and no resize is under way.
func resized(ns *kit.Namespace, name, container, cpu, memory string) *corev1.Pod {
	return ns.Wait(name, "resize to "+cpu+" and "+memory, func(p *corev1.Pod) bool {
		s := kit.Status(p, container)
		return s != nil && s.Resources != nil && s.State.Running != nil &&
			s.Resources.Limits.Cpu().String() == cpu && s.Resources.Limits.Memory().String() == memory &&
			s.AllocatedResources.Cpu().String() == cpu &&
			kit.Condition(p, corev1.PodResizeInProgress) == "" && kit.Condition(p, corev1.PodResizePending) == "" &&
			p.Status.ObservedGeneration == p.Generation
	})
}

// A running pod grows and shrinks without a restart, and its cgroups with it.
func TestResize(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, resources: {requests: {cpu: 20m, memory: 20Mi}, limits: {cpu: 20m, memory: 20Mi}}}
  - name: cache
    image: "busybox:1.36"
    command: $FOREVER
    resources: {requests: {cpu: 20m, memory: 20Mi}, limits: {cpu: 20m, memory: 20Mi}}
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
`))
	before := ns.Running("web")
	for _, want := range []struct{ cpu, memory, quota, bytes string }{
		{"50m", "40Mi", "5000", "41943040"},
		{"30m", "24Mi", "3000", "25165824"},
	} {
		resize(ns, "web", "app", want.cpu, want.memory)
		p := resized(ns, "web", "app", want.cpu, want.memory)
		if s := kit.Status(p, "app"); s.RestartCount != 0 || s.ContainerID != kit.Status(before, "app").ContainerID {
			t.Errorf("the container was restarted: %+v", s)
		}
		ns.Equal(p, "app", "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null | cut -d' ' -f1",
			want.quota)
		ns.Equal(p, "app", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null || true",
			want.bytes)
	}
	resize(ns, "web", "cache", "40m", "40Mi")
	p := resized(ns, "web", "cache", "40m", "40Mi")
	if s := kit.Status(p, "cache"); s.RestartCount != 1 {
		t.Errorf("restarts %d; want one, as the policy for memory says", s.RestartCount)
	}
	if s := kit.Status(p, "app"); s.RestartCount != 0 {
		t.Error("the other container was restarted too")
	}
	if r := p.Status.Resources; r.Limits.Cpu().String() != "70m" || r.Limits.Memory().String() != "64Mi" ||
		p.Status.AllocatedResources.Cpu().String() != "70m" {
		t.Errorf("the pod as a whole has %v and was allocated %v", r, p.Status.AllocatedResources)
	}
	ns.Event("web", "ResizeStarted", "Pod resize started: {")
	ns.Event("web", "ResizeCompleted", "Pod resize completed: {")
	ns.Event("web", "Killing", "Container cache resize requires restart")
}

// What the node doesn't have is put off, and what is in use isn't taken away.
func TestResizeThatCannotBe(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers:
  - name: app
    image: "busybox:1.36"
    command: $FOREVER
    resources: {requests: {cpu: 200m, memory: 60Mi}, limits: {cpu: 200m, memory: 60Mi}}
    volumeMounts: [{name: run, mountPath: /run}]
    lifecycle: {postStart: {exec: {command: [sh, -c, "head -c 30000000 /dev/zero > /run/full"]}}}
  volumes: [{name: run, emptyDir: {medium: Memory}}]
`) + "\n---\n" + pod("other", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER, resources: {requests: {cpu: 20m}}}]\n"))
	before := ns.Running("web")
	ns.Running("other")
	node, err := bed.Client.CoreV1().Nodes().Get(t.Context(), bed.Node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resize(ns, "web", "app", node.Status.Allocatable.Cpu().String(), "60Mi")
	p := ns.Wait("web", "answer to the resize", func(p *corev1.Pod) bool {
		return kit.Condition(p, corev1.PodResizePending) == corev1.ConditionTrue
	})
	if s := kit.Status(p, "app"); s.AllocatedResources.Cpu().String() != "200m" ||
		s.Resources.Limits.Cpu().String() != "200m" {
		t.Errorf("allocated %v, resources %v; want those of before", s.AllocatedResources, s.Resources)
	}
	ns.Event("web", "ResizeDeferred", "Node didn't have enough resource: cpu")
	ns.Because("web", "resize-deferred",
		"the pod waits for its new size: Node didn't have enough resource: cpu, requested: ")

	resize(ns, "web", "app", "200m", "10Mi")
	ns.Event("web", "ResizeError", "cannot decrease memory limits")
	ns.Because("web", "resize-fails", "the pod can't get its new size: container app uses ")
	p = ns.Wait("web", "error of the resize", func(p *corev1.Pod) bool {
		return kit.Condition(p, corev1.PodResizeInProgress) == corev1.ConditionTrue &&
			kit.Condition(p, corev1.PodResizePending) == ""
	})
	if s := kit.Status(p, "app"); s.Resources.Limits.Memory().String() != "60Mi" || s.RestartCount != 0 {
		t.Errorf("resources %v, restarts %d; want it untouched", s.Resources, s.RestartCount)
	}
	resize(ns, "web", "app", "200m", "60Mi")
	if p := resized(ns, "web", "app", "200m", "60Mi"); kit.Status(p, "app").ContainerID != kit.Status(before,
		"app").ContainerID {
		t.Error("the container was restarted")
	}
}
