package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// allowed waits until the container may run on these CPUs.
func allowed(t *testing.T, ns *kit.Namespace, p *corev1.Pod, want string) {
	t.Helper()
	kit.Eventually(t, "the CPUs of "+p.Name, func() error {
		got, err := ns.Try(p, "app", "sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/1/status")
		if err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("they are %s, want %s", strings.TrimSpace(got), want)
		}
		return err
	})
}

// A guaranteed container has a CPU for itself: the others leave it, get it back after the pod's end, and a killed
// daemon changes nothing.
func TestExclusiveCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU, which is the system's")
	}
	ns := bed.Namespace(t)
	all := fmt.Sprintf("0-%d", runtime.NumCPU()-1)
	shared := "0"
	if n := runtime.NumCPU(); n > 2 {
		shared = fmt.Sprintf("0,2-%d", n-1)
	}
	ns.Apply(pod("shared", "\n  containers:\n  - {name: app, image: 'busybox:1.36', command: $FOREVER}\n"))
	common := ns.Running("shared")
	allowed(t, ns, common, all)

	ns.Apply(pod("alone", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {limits: {cpu: 1, memory: 20Mi}}
`))
	alone := ns.Running("alone")
	allowed(t, ns, alone, "1")
	allowed(t, ns, common, shared)
	ns.Equal(alone, "app", "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null | cut -d' ' -f1 | "+
		"sed s/max/-1/", "-1")
	resources := ns.PodResources("alone")
	if ids := resources.GetContainers()[0].GetCpuIds(); len(ids) != 1 || ids[0] != 1 {
		t.Errorf("PodResources has the CPUs %v", ids)
	}
	state, err := os.ReadFile(filepath.Join(bed.Node.RootDir, "cpu_manager_state"))
	if err != nil || !strings.Contains(string(state), string(alone.UID)) {
		t.Errorf("the state file is %s, %v", state, err)
	}
	bed.Signal(t, "resource", syscall.SIGKILL)
	bed.KillContainer(t, alone, "app")
	again := ns.Restarted(alone, "app", 1)
	allowed(t, ns, again, "1")
	ns.Kubectl("patch", "pod/alone", "--subresource=resize", "--patch", `{"spec": {"containers": [{"name": "app", `+
		`"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}}]}}`)
	ns.Because("alone", "resize-infeasible", "the pod can't get its new size on this node: Resize is infeasible for "+
		`Guaranteed Pods alongside CPU Manager policy "static"`)
	ns.Delete("alone", 0)
	ns.Gone(again)
	allowed(t, ns, common, all)
}

// A critical pod asks for CPUs of its own once its victim has ended, which has them until then.
func TestACriticalPodGetsTheCPUsOfItsVictim(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU, which is the system's")
	}
	ns := bed.Namespace(t)
	// The scheduler would preempt the victim itself.
	const spec = `
  nodeName: ` + kit.NodeName + `
  containers:
  - name: app
    image: busybox:1.36
    command: %s
    resources: {limits: {cpu: %d, memory: 20Mi}}
`
	cpus := runtime.NumCPU() - 1
	ns.Apply(pod("victim", fmt.Sprintf(spec, `["sh", "-c", 'trap "" TERM; while :; do sleep 1; done']`, cpus)))
	victim := ns.Running("victim")
	ns.Apply(pod("critical", fmt.Sprintf(spec, "$FOREVER", cpus)+"  priorityClassName: system-node-critical\n"))
	critical := ns.Running("critical")
	want := "1"
	if cpus > 1 {
		want = fmt.Sprintf("1-%d", cpus)
	}
	allowed(t, ns, critical, want)
	if v := ns.Phase("victim", corev1.PodFailed); v.Status.Reason != "Preempting" {
		t.Errorf("the victim has the reason %q", v.Status.Reason)
	}
	for _, p := range []*corev1.Pod{victim, critical} {
		ns.Delete(p.Name, 0)
		ns.Gone(p)
	}
}
