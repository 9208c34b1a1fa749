package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

const toyPod = `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {limits: {$RESOURCE: $COUNT}}
`

func toys(resource, count string) string {
	return strings.NewReplacer("$RESOURCE", resource, "$COUNT", count).Replace(toyPod)
}

// devices waits until the Node has so many devices, of which so many can be had.
func devices(t *testing.T, resource, capacity, allocatable string) {
	t.Helper()
	kit.Eventually(t, "the Node's devices", func() error {
		status := bed.KubeNode(t).Status
		has, can := status.Capacity[corev1.ResourceName(resource)], status.Allocatable[corev1.ResourceName(resource)]
		if has.String() != capacity || can.String() != allocatable {
			return fmt.Errorf("%s of %s %s, want %s of %s", can.String(), has.String(), resource, allocatable, capacity)
		}
		return nil
	})
}

// noDevices waits until the Node offers none of them. The tests that run beside this one kill the daemon, and one that
// was started since the plugin went counts none as capacity either.
func noDevices(t *testing.T, resource string) {
	t.Helper()
	kit.Eventually(t, "the Node to offer no devices", func() error {
		if can := bed.KubeNode(t).Status.Allocatable[corev1.ResourceName(resource)]; !can.IsZero() {
			return fmt.Errorf("%s %s", can.String(), resource)
		}
		return nil
	})
}

// A pod gets devices of a plugin, keeps them over a kill of the resource daemon and over restarts of its container, and
// gives them back. What there isn't is refused in the kubelet's words.
func TestDevicePlugin(t *testing.T) {
	t.Parallel()
	const name = "toys.test/one"
	plugin := bed.DevicePlugin(t, name, "toy-0", "toy-1")
	plugin.Serve()
	devices(t, name, "2", "2")

	ns := bed.Namespace(t)
	over := undisturbed(t)
	ns.Apply(pod("first", toys(name, "1")))
	p := ns.Running("first")
	resources := ns.PodResources("first")
	got := resources.GetContainers()[0].GetDevices()
	if len(got) != 1 || got[0].GetResourceName() != name || len(got[0].GetDeviceIds()) != 1 {
		t.Fatalf("PodResources has %v", resources)
	}
	id := got[0].GetDeviceIds()[0]
	ns.Equal(p, "app", "echo $TOYS; test -c /dev/"+id+" && test -d /toys && echo there", id+"\nthere")
	if n := plugin.PreStarts(id); n != 1 {
		t.Errorf("the plugin was told of %d starts", n)
	}
	over()

	// One is left, and two are asked for. No scheduler would do that, so the pod names its node itself.
	ns.Apply(pod("greedy", "\n  nodeName: "+kit.NodeName+toys(name, "2")))
	refused := ns.Wait("greedy", "its refusal", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	want := "Pod was rejected: Allocate failed due to requested number of devices unavailable for " + name +
		". Requested: 2, Available: 1, which is unexpected"
	if refused.Status.Reason != "UnexpectedAdmissionError" || refused.Status.Message != want {
		t.Errorf("%s: %s", refused.Status.Reason, refused.Status.Message)
	}
	ns.Says("greedy", "this node has refused it: this node has too few devices "+name+": it asks for 2, and 1 are free")

	// A killed daemon has its plugins register again, and knows who has what.
	before := plugin.Registrations()
	killResourceDaemon(t)
	kit.Eventually(t, "the plugin's registration", func() error {
		if n := plugin.Registrations(); n <= before {
			return fmt.Errorf("it has registered %d times", n)
		}
		return nil
	})
	devices(t, name, "2", "2")
	over = undisturbed(t)
	bed.KillContainer(t, p, "app")
	again := ns.Restarted(p, "app", 1)
	ns.Equal(again, "app", "echo $TOYS", id)
	if n := plugin.PreStarts(id); n != 2 {
		t.Errorf("the plugin was told of %d starts", n)
	}
	over()
	data, err := os.ReadFile(filepath.Join(bed.Node.RootDir, "device-plugins/kubelet_internal_checkpoint"))
	if err != nil || !strings.Contains(string(data), string(p.UID)) {
		t.Errorf("the checkpoint is %s, %v", data, err)
	}

	plugin.SetHealth(id, false)
	ns.Wait("first", "its device's health", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && len(s.AllocatedResourcesStatus) == 1 && s.AllocatedResourcesStatus[0].Name == name &&
			s.AllocatedResourcesStatus[0].Resources[0].Health == corev1.ResourceHealthStatusUnhealthy
	})
	devices(t, name, "2", "1")
	plugin.SetHealth(id, true)
	ns.Delete("first", 0)
	ns.Gone(again)
	ns.Apply(pod("second", toys(name, "2")))
	second := ns.Running("second")
	ns.Delete("second", 1)
	ns.Gone(second)

	// A plugin that hangs holds up the pod, and its answer lets it go on.
	answer := make(chan struct{})
	plugin.OnCall(func(call string) {
		if call == "Allocate" {
			<-answer
		}
	})
	ns.Apply(pod("third", toys(name, "1")))
	ns.Says("third", "the pod can't start yet: a device plugin is asked for its devices",
		"reported: pod.allocation: waiting for device plugins")
	plugin.OnCall(nil)
	close(answer)
	ns.Running("third")
}

// A pod says that it waits for the resource daemon, while that hangs.
func TestWhyWithoutTheDaemon(t *testing.T) {
	const name = "toys.test/why"
	plugin := bed.DevicePlugin(t, name, "toy-0")
	plugin.Serve()
	devices(t, name, "1", "1")
	ns := bed.Namespace(t)
	bed.Signal(t, "resource", syscall.SIGSTOP)
	defer bed.Signal(t, "resource", syscall.SIGCONT)
	ns.Apply(pod("waits", "\n  nodeName: "+kit.NodeName+toys(name, "1")))
	ns.Says("waits", "the pod can't start yet: the daemon resource hasn't given it its devices, CPUs or claims")
	bed.Signal(t, "resource", syscall.SIGCONT)
	ns.Running("waits")
}
