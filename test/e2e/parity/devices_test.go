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

// startWithDevices starts the node with the kubelet. That has the sockets of device plugins and its checkpoint at one
// place of the machine, which becomes the bed's too; in the end nothing is left there of what agents have written.
func startWithDevices(t *testing.T, bed *kit.Bed) {
	t.Helper()
	const plugins = deviceplugin.KubeletDir
	tidy := func() {
		// Where the last of them is, plugins of the kubelet's own library don't register. Old agents make it.
		for _, name := range []string{"kubelet_internal_checkpoint", "kubelot_boot_id", "DEPRECATION"} {
			_ = os.Remove(filepath.Join(plugins, name))
		}
	}
	tidy()
	t.Cleanup(tidy)
	if err := os.MkdirAll(plugins, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := bed.StartNode(t.Context(), node.Kubelet); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(plugins, filepath.Join(bed.Node.RootDir, "device-plugins")); err != nil {
		t.Fatal(err)
	}
}

// TestDevicesTakenOver has a pod get a device and a CPU of its own from the kubelet, goes on with kubelot, and then
// with the kubelet again: neither asks for a new one, nor restarts anything, and the next container has the same.
func TestDevicesTakenOver(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU, which is the system's")
	}
	bed := kit.StartWithoutNode(t)
	bed.Config = "reservedSystemCPUs: \"0\"\ncpuManagerPolicy: static\n"
	startWithDevices(t, bed)
	const name = "toys.test/taken"
	plugin := bed.DevicePlugin(t, name, "toy-0", "toy-1", "toy-2")
	plugin.Serve()
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
    resources: {limits: {cpu: 1, memory: 20Mi, ` + name + `: 1}}
`)
	before := ns.Running("taken")
	const show = "echo $TOYS; sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/1/status"
	shows := ns.Exec(before, "app", show)
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
			if q := bed.KubeNode(t).Status.Allocatable[corev1.ResourceName(name)]; q.Value() != 3 {
				return fmt.Errorf("there are %s", q.String())
			}
			return nil
		})
		p := ns.Running("taken")
		if s := kit.Status(p, "app"); s.RestartCount != restarts {
			t.Errorf("%v has restarted the container: %+v", agent, s)
		}
		has := ns.PodResources("taken").GetContainers()[0]
		if d := has.GetDevices(); len(d) != 1 || strings.Join(d[0].GetDeviceIds(), ",") != strings.Fields(shows)[0] ||
			fmt.Sprint(has.GetCpuIds()) != "["+strings.Fields(shows)[1]+"]" {
			t.Errorf("by %v the container has %v, want %q", agent, has, shows)
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
