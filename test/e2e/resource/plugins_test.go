package resource

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// The daemon is started, as after a reboot, and a plugin that was there before isn't back yet. A pod that wants its
// devices waits and says for what, instead of being refused for good, and starts when the plugin has registered. A pod
// that has a device keeps it.
func TestPodsWaitForAPluginThatWasThereBefore(t *testing.T) {
	t.Parallel()
	const name = "toys.test/returns"
	plugin := bed.DevicePlugin(t, name, "toy-0", "toy-1")
	stop := plugin.Serve()
	devices(t, name, "2", "2")
	ns := bed.Namespace(t)
	ns.Apply(pod("runs", toys(name, "1")))
	runs := ns.Running("runs")
	has := ns.Exec(runs, "app", "echo $TOYS")

	stop()
	noDevices(t, name)
	killResourceDaemon(t)
	// No scheduler sends pods for devices that the Node hasn't. Those that wait after a reboot were sent before.
	ns.Apply(pod("waits", "\n  nodeName: "+kit.NodeName+toys(name, "1")))
	ns.Says("waits", "the pod can't start yet: the device plugin of "+name+" has not registered again since the resource "+
		"daemon was started")
	ns.Because("waits", "device-plugin-returns", name)
	p, err := bed.Client.CoreV1().Pods(ns.Name).Get(t.Context(), "waits", metav1.GetOptions{})
	if err != nil || p.Status.Phase != corev1.PodPending {
		t.Errorf("it doesn't wait: %+v, %v", p.Status, err)
	}

	plugin.Serve()
	waits := ns.Running("waits")
	if got := ns.Exec(waits, "app", "echo $TOYS"); got == has || !strings.HasPrefix(got, "toy-") {
		t.Errorf("it has %q, and the pod that runs has %s", got, has)
	}
	if s := kit.Status(ns.Running("runs"), "app"); s.RestartCount != 0 {
		t.Errorf("the pod that runs: %+v", s)
	}
	ns.Equal(runs, "app", "echo $TOYS", has)
}

// watchedAgain waits until the plugin's devices have been watched more often.
func watchedAgain(t *testing.T, plugin *kit.DevicePlugin, lists int) {
	t.Helper()
	kit.Eventually(t, "the daemon to watch the devices again", func() error {
		if n := plugin.Lists(); n <= lists {
			return fmt.Errorf("it has done so %d times", n)
		}
		return nil
	})
}

// A plugin that is found in plugins_registry serves as one that registers itself. A killed daemon is told of it by the
// bus, and the plugin has nothing to do. It says which devices it prefers.
func TestDevicePluginInTheRegistry(t *testing.T) {
	t.Parallel()
	const name = "toys.test/registry"
	plugin := bed.DevicePluginInRegistry(t, name, "toy-0", "toy-1", "toy-2")
	plugin.Prefers = true
	stop := plugin.Serve()
	devices(t, name, "3", "3")
	ns := bed.Namespace(t)
	ns.Apply(pod("first", toys(name, "1")))
	first := ns.Running("first")
	ns.Equal(first, "app", "echo $TOYS; test -c /dev/toy-2 && echo there", "toy-2\nthere")

	lists, registrations := plugin.Lists(), plugin.Registrations()
	killResourceDaemon(t)
	watchedAgain(t, plugin, lists)
	if n := plugin.Registrations(); n != registrations {
		t.Errorf("it has registered %d times, before it was %d", n, registrations)
	}
	ns.Apply(pod("second", toys(name, "2")))
	ns.Equal(ns.Running("second"), "app", "echo $TOYS", "toy-0,toy-1")

	stop()
	noDevices(t, name)
}
