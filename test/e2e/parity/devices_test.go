package parity

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/deviceplugin"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// sample is what Kubernetes' sample device plugin has.
const sample = "example.com/resource"

// TestDevicesTakenOver has a pod get a CPU and devices of its own from the kubelet, of the tests' plugin and of
// Kubernetes' sample plugin, goes on with kubelot, and then with the kubelet again: neither asks for a new one, nor
// restarts anything, and the next container has the same.
func TestDevicesTakenOver(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU, which is the system's")
	}
	bed := kit.StartWithoutNode(t)
	bed.Config = "reservedSystemCPUs: \"0\"\ncpuManagerPolicy: static\n"
	const plugins = deviceplugin.KubeletDir
	if err := os.MkdirAll(plugins, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(filepath.Join(plugins, "kubelet_internal_checkpoint")) })
	if err := bed.StartNode(t.Context(), node.Kubelet); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(plugins, filepath.Join(bed.Node.RootDir, "device-plugins")); err != nil {
		t.Fatal(err)
	}
	const name = "toys.test/taken"
	plugin := bed.DevicePlugin(t, name, "toy-0", "toy-1", "toy-2")
	plugin.Serve()
	program, err := bed.Tools.EnsureSamplePlugin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	launch(t, program)
	t.Cleanup(func() { _, _ = os.Remove("/tmp/Dev-1"), os.Remove("/tmp/Dev-2") })
	ns := bed.Namespace(t)
	ns.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: taken}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    ` + forever + `
    resources: {limits: {cpu: 1, memory: 20Mi, ` + name + `: 1, ` + sample + `: 1}}
`)
	before := ns.Running("taken")
	const show = "echo $TOYS; sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/1/status; cd /tmp && echo Dev-*"
	shows := ns.Exec(before, "app", show)
	has := func() string {
		c := ns.PodResources("taken").GetContainers()[0]
		ids := map[string]string{}
		for _, d := range c.GetDevices() {
			ids[d.GetResourceName()] += strings.Join(d.GetDeviceIds(), ",")
		}
		return fmt.Sprintf("%s\n%s\n%s", ids[name], strings.Trim(fmt.Sprint(c.GetCpuIds()), "[]"), ids[sample])
	}
	if got := has(); got != shows {
		t.Errorf("the container has %q by PodResources and sees %q", got, shows)
	}
	restarts := int32(0)
	for _, agent := range []node.Agent{node.Kubelot, node.Kubelet, node.Kubelot} {
		bed.Node.Stop()
		registered := plugin.Registrations()
		if err := bed.StartNode(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "the plugin's registration", func() error {
			if n := plugin.Registrations(); n <= registered {
				return fmt.Errorf("it has registered %d times", n)
			}
			return nil
		})
		kit.Eventually(t, "the Node's devices", func() error {
			status := bed.KubeNode(t).Status
			toys, samples := status.Allocatable[corev1.ResourceName(name)], status.Allocatable[sample]
			if toys.Value() != 3 || samples.Value() != 2 {
				return fmt.Errorf("there are %s and %s", toys.String(), samples.String())
			}
			return nil
		})
		p := ns.Running("taken")
		if s := kit.Status(p, "app"); s.RestartCount != restarts {
			t.Errorf("%v has restarted the container: %+v", agent, s)
		}
		if got := has(); got != shows {
			t.Errorf("by %v the container has %q, want %q", agent, got, shows)
		}
		ns.HeedsTERM(p, "app")
		_, _ = ns.Try(p, "app", "kill 1")
		restarts++
		p = ns.Wait("taken", "restarted", func(p *corev1.Pod) bool {
			return kit.Ready(p) && kit.Status(p, "app").RestartCount == restarts
		})
		ns.Equal(p, "app", show, shows)
	}
}
