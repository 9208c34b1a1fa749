package resource

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
			kit.Eventually(t, "the devices after "+pods, func() error {
				if q := bed.KubeNode(t).Status.Allocatable[corev1.ResourceName(name)]; q.Value() != 3 {
					return fmt.Errorf("the Node has %s", q.String())
				}
				return nil
			})
		}
	}
	if s := kit.Status(ns.Running("other"), "app"); s.RestartCount != 0 {
		t.Errorf("the other pod: %+v", s)
	}
}
