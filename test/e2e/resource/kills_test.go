package resource

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"kubelot.dev/test/e2e/kit"
)

// Whoever dies while a plugin is asked: the pod gets its device, nobody gets one that is another's, and in the end all
// are free.
func TestKilledAtEveryCall(t *testing.T) {
	plugin := bed.DevicePlugin(t, "toys.test/killed", "toy-0", "toy-1", "toy-2")
	plugin.Prefers = true
	killedAt(t, plugin, []string{"resource", "podsync", "plugin"}, "GetDevicePluginOptions", "ListAndWatch",
		"GetPreferredAllocation", "Allocate", "PreStartContainer")
}

// As TestKilledAtEveryCall, for a plugin of plugins_registry, where the volume daemon finds it.
func TestKilledWhileAPluginIsFound(t *testing.T) {
	plugin := bed.DevicePluginInRegistry(t, "toys.test/found", "toy-0", "toy-1", "toy-2")
	killedAt(t, plugin, []string{"volume", "resource", "plugin"}, "GetInfo", "NotifyRegistrationStatus")
}

// registering are the calls of a plugin or a driver that come, without any pod, because it is there.
var registering = []string{
	"GetInfo", "NotifyRegistrationStatus", "GetDevicePluginOptions", "ListAndWatch", "NodeWatchResources",
}

// killedAt kills each victim at each call of the plugin, which has three devices.
func killedAt(t *testing.T, plugin *kit.DevicePlugin, victims []string, calls ...string) {
	t.Helper()
	name := plugin.Resource
	plugin.Serve()
	devices(t, name, "3", "3")
	ns := bed.Namespace(t)
	ns.Apply(pod("other", toys(name, "1")))
	other := ns.Running("other")
	others := ns.Exec(other, "app", "echo $TOYS")

	for _, call := range calls {
		registers := slices.Contains(registering, call)
		for _, victim := range victims {
			if registers && victim == "podsync" {
				continue // it has no part in that
			}
			d := deathAt(t, plugin, call, victim)
			if registers {
				d.whileItRegisters(t, plugin)
			}
			pods := strings.ToLower("at-" + call + "-" + victim)
			ns.Apply(pod(pods, toys(name, "2")))
			p := ns.Running(pods)
			await(t, call, d.over)
			plugin.OnCall(nil)
			got := strings.Split(ns.Exec(p, "app", "echo $TOYS"), ",")
			if len(got) != 2 || got[0] == got[1] || got[0] == others || got[1] == others {
				t.Errorf("%s: it has %q, and the other pod has %s", pods, got, others)
			}
			if s := kit.Status(p, "app"); s.RestartCount != 0 {
				t.Errorf("%s: %+v", pods, s)
			}
			ns.Delete(pods, 1)
			ns.Gone(p)
		}
	}
	if s := kit.Status(ns.Running("other"), "app"); s.RestartCount != 0 {
		t.Errorf("the other pod: %+v", s)
	}
	ns.Delete("other", 1)
	ns.Gone(other)
	ns.Apply(pod("all", toys(name, "3")))
	ns.Running("all")
}

// death is that of a victim at a call of a plugin.
type death struct {
	call, victim string
	// over is closed when the victim is dead.
	over chan struct{}
	// lists and registrations are how often the plugin had been watched and had registered when the call came.
	lists, registrations int
}

// deathAt kills the victim at the next such call, which waits for its death.
func deathAt(t *testing.T, plugin *kit.DevicePlugin, call, victim string) *death {
	t.Helper()
	d := &death{call: call, victim: victim, over: make(chan struct{})}
	kill := func() { bed.Signal(t, victim, syscall.SIGKILL) }
	if victim == "plugin" {
		kill = plugin.Stop
	}
	var once sync.Once
	plugin.OnCall(func(c string) {
		if c != call {
			return
		}
		once.Do(func() {
			d.lists, d.registrations = plugin.Lists(), plugin.Registrations()
			go func() {
				defer close(d.over)
				kill()
			}()
			<-d.over
		})
	})
	return d
}

// whileItRegisters has the plugin register, by which the victim dies, and waits until all is well again.
func (d *death) whileItRegisters(t *testing.T, plugin *kit.DevicePlugin) {
	t.Helper()
	before := plugin.Lists()
	plugin.Stop() // it comes again
	await(t, d.call, d.over)
	lists, registrations := d.lists, d.registrations
	if d.call == "NotifyRegistrationStatus" {
		// The resource daemon knows of the plugin by then. Perhaps it watches the devices already, and goes on with that
		// when the volume daemon dies.
		if d.victim == "volume" {
			lists = before
		}
		// The plugin has counted this call too. It is told once more, unless only the resource daemon has died.
		if d.victim != "resource" {
			registrations++
		}
	}
	comesAgain(t, plugin, lists, registrations)
}

// await waits for the end of what is called so.
func await(t *testing.T, what string, end <-chan struct{}) {
	t.Helper()
	select {
	case <-end:
	case <-time.After(kit.Patience):
		t.Fatalf("waited %v for %s", kit.Patience, what)
	}
}

// comesAgain waits until the plugin has registered more often, its devices are watched once more, and the daemon has
// all three. Until then it would refuse a pod that wants them, which may come: the Node may still have those of before.
func comesAgain(t *testing.T, plugin *kit.DevicePlugin, lists, registrations int) {
	t.Helper()
	watchedAgain(t, plugin, lists)
	api := podresourcesapi.NewPodResourcesListerClient(bed.PodResourcesConn(t))
	kit.Eventually(t, "the devices of "+plugin.Resource, func() error {
		if n := plugin.Registrations(); n <= registrations {
			return fmt.Errorf("it has registered %d times", n)
		}
		all, err := api.GetAllocatableResources(t.Context(), &podresourcesapi.AllocatableResourcesRequest{})
		n := 0
		for _, d := range all.GetDevices() {
			if d.GetResourceName() == plugin.Resource {
				n += len(d.GetDeviceIds())
			}
		}
		if err == nil && n != 3 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// Whoever dies while a DRA driver is asked: the pod gets the device that it claims, its claim is given back in the end,
// and all devices are free then.
func TestKilledAtEveryCallOfADriver(t *testing.T) {
	driver := bed.DRADriver(t, "killed.test", "toy-0", "toy-1")
	reports(driver, "it is new")
	driver.Serve()
	t.Cleanup(driver.Stop)
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name))
	kills := map[string]func(){
		"resource": func() { bed.Signal(t, "resource", syscall.SIGKILL) },
		"podsync":  func() { bed.Signal(t, "podsync", syscall.SIGKILL) },
		"volume":   func() { bed.Signal(t, "volume", syscall.SIGKILL) }, // which finds drivers
		"driver":   driver.Stop,
	}
	calls := []string{"GetInfo", "NotifyRegistrationStatus", "NodeWatchResources", "prepare", "unprepare"}
	for _, call := range calls {
		for victim, kill := range kills {
			driverKilledAt(t, ns, driver, call, victim, kill)
		}
	}
	driver.OnCall(nil)
	two := strings.NewReplacer("claims: [{name: toy}]", "claims: [{name: toy}, {name: more}]", "resourceClaims: [",
		"resourceClaims: [{name: more, resourceClaimTemplateName: toy}, ").Replace(claimingPod)
	ns.Apply(pod("all", two))
	p := ns.Running("all")
	// The driver ends with the test, and its pods must be gone by then.
	ns.Delete("all", 1)
	ns.Gone(p)
}

// driverKilledAt has a pod claim a device and end, and the victim die at the driver's call meanwhile.
func driverKilledAt(t *testing.T, ns *kit.Namespace, driver *kit.DRADriver, call, victim string, kill func()) {
	t.Helper()
	name := strings.ToLower("at-" + call + "-" + victim)
	registers := slices.Contains(registering, call)
	var once sync.Once
	killed := make(chan struct{})
	if registers {
		driver.Stop()
	}
	driver.OnCall(func(c string) {
		if c == call {
			once.Do(func() {
				kill()
				close(killed)
			})
		}
	})
	back := func() {
		await(t, call, killed)
		if victim == "driver" {
			driver.Serve()
		}
	}
	if registers {
		driver.Serve()
	}
	ns.Apply(pod(name, claimingPod))
	if call != "unprepare" {
		back()
	}
	p := ns.Running(name)
	if toy := ns.Exec(p, "app", "echo $TOY"); toy != "toy-0" && toy != "toy-1" {
		t.Errorf("%s: the container has %q", name, toy)
	}
	if s := kit.Status(p, "app"); s.RestartCount != 0 {
		t.Errorf("%s: %+v", name, s)
	}
	if call == "NodeWatchResources" {
		reports(driver, "it is heard after "+victim)
		showsHealth(ns, name, "it is heard after "+victim)
	}
	ns.Delete(name, 1)
	if call == "unprepare" {
		back()
	}
	ns.Gone(p)
	want := "unprepare " + ns.Name + "/" + *p.Status.ResourceClaimStatuses[0].ResourceClaimName
	if calls := driver.Calls(); calls[len(calls)-1] != want {
		t.Errorf("%s: the driver was asked %v, want %s in the end", name, calls, want)
	}
}

// reports has the driver say that of both its devices, which are healthy.
func reports(driver *kit.DRADriver, message string) {
	for _, toy := range []string{"toy-0", "toy-1"} {
		driver.Report(toy, healthv1alpha1.HealthStatus_HEALTHY, message)
	}
}

// showsHealth waits until the pod's status has that message of the device that it claims.
func showsHealth(ns *kit.Namespace, name, message string) {
	ns.Wait(name, "its device: "+message, func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		if s == nil || len(s.AllocatedResourcesStatus) != 1 || len(s.AllocatedResourcesStatus[0].Resources) != 1 {
			return false
		}
		said := s.AllocatedResourcesStatus[0].Resources[0].Message
		return said != nil && *said == message
	})
}
