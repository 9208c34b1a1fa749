package resource

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	killedAt(t, plugin, []string{"volume", "resource", "plugin"}, "GetInfo")
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
		// While it registers it is asked for its options.
		registers := slices.Contains([]string{"GetInfo", "GetDevicePluginOptions", "ListAndWatch"}, call)
		for _, victim := range victims {
			if registers && victim == "podsync" {
				continue // it has no part in that
			}
			kill := func() { bed.Signal(t, victim, syscall.SIGKILL) }
			if victim == "plugin" {
				kill = plugin.Stop
			}
			var once sync.Once
			var lists, registrations int
			killed := make(chan struct{})
			plugin.OnCall(func(c string) {
				if c == call {
					once.Do(func() {
						lists, registrations = plugin.Lists(), plugin.Registrations()
						go func() {
							defer close(killed)
							kill()
						}()
						<-killed
					})
				}
			})
			if registers {
				plugin.Stop() // it comes again
				await(t, call, killed)
				comesAgain(t, plugin, lists, registrations)
			}
			pods := strings.ToLower("at-" + call + "-" + victim)
			ns.Apply(pod(pods, toys(name, "2")))
			p := ns.Running(pods)
			await(t, call, killed)
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
	for _, call := range []string{"GetInfo", "NotifyRegistrationStatus", "prepare", "unprepare"} {
		registers := call == "GetInfo" || call == "NotifyRegistrationStatus"
		for victim, kill := range kills {
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
			name := strings.ToLower("at-" + call + "-" + victim)
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
