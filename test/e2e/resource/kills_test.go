package resource

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// Whoever dies while a plugin is asked: the pod gets its device, nobody gets one that is another's, and in the end all
// are free.
func TestKilledAtEveryCall(t *testing.T) {
	const name = "toys.test/killed"
	plugin := bed.DevicePlugin(t, name, "toy-0", "toy-1", "toy-2")
	plugin.Serve()
	devices(t, name, "3", "3")
	ns := bed.Namespace(t)
	ns.Apply(pod("other", toys(name, "1")))
	other := ns.Running("other")
	others := ns.Exec(other, "app", "echo $TOYS")

	kills := map[string]func(){
		"resource": func() { bed.Signal(t, "resource", syscall.SIGKILL) },
		"podsync":  func() { bed.Signal(t, "podsync", syscall.SIGKILL) },
		"plugin":   plugin.Stop,
	}
	for _, call := range []string{"Allocate", "PreStartContainer"} {
		for victim, kill := range kills {
			var once sync.Once
			killed := make(chan struct{})
			plugin.OnCall(func(c string) {
				if c == call {
					once.Do(func() {
						go func() {
							defer close(killed)
							kill()
						}()
						<-killed
					})
				}
			})
			pods := strings.ToLower("at-" + call + "-" + victim)
			ns.Apply(pod(pods, toys(name, "2")))
			p := ns.Running(pods)
			<-killed
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

// Whoever dies while a DRA driver is asked: the pod gets the device that it claims, its claim is given back in the end,
// and all devices are free then.
func TestKilledAtEveryCallOfADriver(t *testing.T) {
	driver := bed.DRADriver(t, "killed.test", "toy-0", "toy-1")
	stop := driver.Serve()
	t.Cleanup(func() { stop() })
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name))
	kills := map[string]func(){
		"resource": func() { bed.Signal(t, "resource", syscall.SIGKILL) },
		"podsync":  func() { bed.Signal(t, "podsync", syscall.SIGKILL) },
		"driver":   func() { stop() },
	}
	for _, call := range []string{"prepare", "unprepare"} {
		for victim, kill := range kills {
			var once sync.Once
			killed := make(chan struct{})
			driver.OnCall(func(c string) {
				if c == call {
					once.Do(func() {
						kill()
						close(killed)
					})
				}
			})
			back := func() {
				<-killed
				if victim == "driver" {
					stop = driver.Serve()
				}
			}
			name := "at-" + call + "-" + victim
			ns.Apply(pod(name, claimingPod))
			if call == "prepare" {
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
