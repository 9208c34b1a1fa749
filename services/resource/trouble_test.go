package resource

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/dra"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
	"kubelot.dev/services/resource/internal/statefile"
)

// near has the plugin of a resource list healthy devices, one for each NUMA node that is named.
func (b *bed) near(name string, nodes ...int) {
	r := deviceplugin.Report{Resource: name}
	for i, node := range nodes {
		r.Devices = append(r.Devices, devices.Device{ID: string(rune('a' + i)), Healthy: true, Nodes: []int{node}})
	}
	b.service.report(b.t.Context(), r)
	synctest.Wait()
}

// phases are what is said of a pod from now on.
func (b *bed) phases(uid string) func() []topic.AllocationPhase {
	changes, err := topic.PodAllocation.Watch(b.t.Context(), b.others, uid)
	if err != nil {
		b.t.Fatal(err)
	}
	var said []topic.AllocationPhase
	live := false
	go func() {
		for c := range changes {
			if live && !c.Deleted {
				said = append(said, c.Value.Phase)
			}
			live = live || c.Synced
		}
	}()
	synctest.Wait()
	return func() []topic.AllocationPhase {
		synctest.Wait()
		return said
	}
}

// A pod must not start without its devices because their plugin has been given up meanwhile.
func TestAPodWhosePluginDoesntComeBackIsRefused(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.stop()
		b.start()
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		time.Sleep(devices.Grace + time.Second)
		const why = "refused UnexpectedAdmissionError: Allocate failed due to cannot allocate unregistered device " + gpu +
			", which is unexpected"
		b.says("a", why)
		// The scheduler may not know yet that the Node has none any more.
		b.wants("b", map[corev1.ResourceName]string{gpu: "1"})
		b.says("b", why)
		b.lists(gpu, "g0")
		b.wants("c", map[corev1.ResourceName]string{gpu: "1"})
		b.says("c", "allocated")
	})
}

// After a restart a plugin may have no devices for a time, as long as its driver is being loaded.
func TestAPluginThatComesBackWithoutDevices(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.stop()
		b.start()
		b.lists(gpu)
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		if a := b.allocation("a"); a.Phase != topic.Allocating || !strings.Contains(a.Message, gpu) {
			t.Errorf("got %+v", a)
		}
		b.lists(gpu, "g0")
		b.says("a", "allocated")

		b.lists(gpu)
		b.wants("b", map[corev1.ResourceName]string{gpu: "1"})
		if a := b.allocation("b"); a.Phase != topic.AllocationRefused {
			t.Errorf("got %+v, which is for the time after a start only", a)
		}
	})
}

// Scope pod: what the first container has got doesn't hinder the second one.
func TestAPodIsAlignedAsAWhole(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.stop()
		b.align = numa.Config{
			Policy: numa.PolicySingleNUMANode, Scope: "pod", Nodes: []machine.Node{{ID: 0}, {ID: 1}},
		}
		b.start()
		b.near(gpu, 0, 1, 1)
		limits := corev1.ResourceList{gpu: resource.MustParse("1")}
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "ns", "a", "a"
		for _, name := range []string{"one", "two"} {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: name, Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
			})
		}
		b.state(pod, topic.Syncing)
		b.says("a", "allocated")
		a := b.allocation("a")
		if one, two := a.Containers["one"].Devices, a.Containers["two"].Devices; len(one) != 1 || len(two) != 1 ||
			one[0].ID == two[0].ID || one[0].ID == "a" || two[0].ID == "a" {
			t.Errorf("%v and %v aren't both near to NUMA node 1", one, two)
		}
		b.near(nic, 0, 1)
		b.wants("b", map[corev1.ResourceName]string{nic: "2"})
		b.says("b", "refused TopologyAffinityError: Resources cannot be allocated with Topology locality")
	})
}

// A pod that is to be aligned waits for a plugin that goes while it is asked, as any other does.
func TestAnAlignedPodWaitsForItsPlugin(t *testing.T) {
	for _, scope := range []string{"container", "pod"} {
		t.Run(scope, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.two(scope)
				b.on(0, 1)
				b.fail = deviceplugin.ErrAway
				b.come(asks("a", "cpu=2 gpu=1"))
				b.service.report(b.t.Context(), deviceplugin.Report{Resource: gpu, Away: true})
				if a := b.allocation("a"); a.Phase != topic.Allocating {
					t.Fatalf("got %+v", a)
				}
				b.come(asks("new", "cpu=2 gpu=1"))
				b.says("new", "refused TopologyAffinityError: Resources cannot be allocated with Topology locality")
				b.mu.Lock()
				b.fail = nil
				b.mu.Unlock()
				b.on(0, 1)
				b.says("a", "allocated")
				if got := b.nodes("a"); len(got) != 1 {
					t.Errorf("it is of the NUMA nodes %v: %+v", got, b.allocation("a").Containers)
				}
			})
		})
	}
}

// What a pod runs with isn't given to another one because the pod would not get all of it again after a restart.
func TestARestartTakesNothingFromAPodThatRuns(t *testing.T) {
	for name, forgotten := range map[string]bool{"of the daemon": false, "of the machine, or a take-over": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.static()
				b.lists(gpu, "g0")
				pod := b.wants("a", map[corev1.ResourceName]string{gpu: "1", "cpu": "2", "memory": "1Mi"})
				b.says("a", "allocated")
				b.wants("b", map[corev1.ResourceName]string{"cpu": "1", "memory": "1Mi"})
				b.says("b", "allocated")

				b.stop()
				b.reserved = cpuset.New(0, 1)
				if forgotten {
					b.unsaid("a")
				}
				b.start()
				a := b.allocation("a")
				switch c := a.Containers["app"]; {
				case forgotten && (a.Phase != topic.AllocationRefused || !strings.Contains(a.Message, "cpus")):
					t.Errorf("there is one CPU for the two that it asks for, and it is %s: %s", a.Phase, a.Message)
				case !forgotten && (a.Phase != topic.Allocated || len(c.Devices) != 1 || c.CPUs != ""):
					t.Errorf("it doesn't run on with its device and shared CPUs: %+v", a)
				}
				b.lists(gpu, "g0")
				b.wants("c", map[corev1.ResourceName]string{gpu: "1"})
				if a := b.allocation("c"); a.Phase != topic.AllocationRefused {
					t.Errorf("another pod gets its device: %+v", a)
				}
				b.state(pod, topic.Terminated)
				b.wants("d", map[corev1.ResourceName]string{gpu: "1"})
				b.says("d", "allocated")
			})
		})
	}
}

// What a plugin has answered before the machine was booted says nothing of the devices that there are now.
func TestAfterARebootPluginsAreAskedAgain(t *testing.T) {
	limits := map[corev1.ResourceName]string{gpu: "1"}
	// reboot starts the daemon anew; a pod has got the device g1 before.
	reboot := func(b *bed) {
		b.lists(gpu, "g0", "g1")
		b.wants("a", limits)
		if got := b.calls(); !slices.Equal(got, []string{"Allocate " + gpu + " g1"}) {
			b.t.Fatal(got)
		}
		b.stop()
		b.unsaid("a")
		if err := os.WriteFile(filesOf(b.dir, b.dir).boot, []byte("another"), 0o600); err != nil {
			b.t.Fatal(err)
		}
		b.start()
	}
	t.Run("its device is there", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			reboot(b)
			if a := b.allocation("a"); a.Phase != topic.Allocating || !strings.Contains(a.Message, "plugin of "+gpu) {
				t.Errorf("got %+v before its plugin is back", a)
			}
			b.lists(gpu, "g0", "g1")
			b.says("a", "allocated")
			if got := b.calls(); len(got) != 2 || got[1] != got[0] {
				t.Errorf("asked %v", got)
			}
			b.wants("b", map[corev1.ResourceName]string{gpu: "2"})
			if a := b.allocation("b"); a.Phase != topic.AllocationRefused {
				t.Errorf("another pod gets its device: %+v", a)
			}
			b.stop()
			b.unsaid("a")
			b.start()
			b.says("a", "allocated")
			if got := b.calls(); len(got) != 2 {
				t.Errorf("asked %v after a restart without a reboot", got)
			}
		})
	})
	t.Run("its device is gone", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			reboot(b)
			b.lists(gpu, "g0")
			b.says("a", "refused UnexpectedAdmissionError: Allocate failed due to previously allocated devices are no longer "+
				"healthy; cannot allocate unhealthy devices "+gpu+", which is unexpected")
		})
	})
}

// The time of the file tells whether it is from before the boot only where a kubelet has written it: the clock may have
// been set.
func TestTheClockWasSet(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet, said bool
		want          topic.AllocationPhase
	}{
		"the file is kubelot's":                       {want: topic.Allocated},
		"it is a kubelet's":                           {kubelet: true, want: topic.Allocating},
		"a kubelet's, and the bus knows that it runs": {kubelet: true, said: true, want: topic.Allocated},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.lists(gpu, "g0")
				b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
				b.stop()
				if !c.said {
					b.unsaid("a")
				}
				if long := time.Unix(1, 0); c.kubelet {
					if err := os.Chtimes(filesOf(b.dir, b.dir).boot, long, long); err != nil {
						t.Fatal(err)
					}
				}
				b.booted = time.Now().AddDate(1000, 0, 0)
				b.start()
				if a := b.allocation("a"); a.Phase != c.want {
					t.Errorf("got %+v", a)
				}
			})
		})
	}
}

// told are claims that only listen.
type told struct {
	synced int
	wanted []types.UID
	busy   bool
}

func (c *told) Want(pod *corev1.Pod, stage dra.Stage) {
	if stage == dra.Admitted {
		c.wanted = append(c.wanted, pod.UID)
	}
}
func (*told) Ended(*corev1.Pod)                     {}
func (*told) Forget(types.UID)                      {}
func (c *told) Synced()                             { c.synced++ }
func (*told) Registered(map[string]topic.Plugin)    {}
func (*told) Run(context.Context) error             { return nil }
func (*told) Changes() <-chan struct{}              { return nil }
func (c *told) Idle() bool                          { return !c.busy }
func (*told) Take() (none map[types.UID]dra.Status) { return none }

// Which pods the sources want may be told before podsync has told of these pods. Claims of pods that run must not count
// as those of pods that are gone by then: their drivers would take the devices from running containers.
func TestNoPodCountsAsGoneBeforeItIsToldOf(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.stop()
		claims := &told{}
		b.claims = claims
		if err := b.sources.Set("", topic.Sources{}); err != nil {
			t.Fatal(err)
		}
		// Written by now, or the daemon reads what the bed has said at its begin.
		synctest.Wait()
		b.start()
		b.settle("a", "b")
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "ns", "a", "a"
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		b.state(pod, topic.Syncing)
		if claims.synced != 0 {
			t.Error("b counts as gone")
		}
		b.wants("b", nil)
		if claims.synced != 1 || !slices.Equal(claims.wanted, []types.UID{"a"}) {
			t.Errorf("told %d times, with %v", claims.synced, claims.wanted)
		}
		b.wants("c", nil)
		if claims.synced != 1 {
			t.Errorf("told %d times", claims.synced)
		}
	})
}

// Two pods never have a CPU, however the first one's end and the second one's start are interleaved with a restart.
func TestCPUsAreReleasedWhenTheirPodIsGone(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		limits := map[corev1.ResourceName]string{"cpu": "3", "memory": "1Mi"}
		b.wants("a", limits)
		b.says("a", "allocated")
		b.stop()
		if err := b.pods.Delete("a"); err != nil {
			t.Fatal(err)
		}
		if err := b.sources.Set("", topic.Sources{}); err != nil {
			t.Fatal(err)
		}
		b.wants("b", limits)
		b.start()
		if a := b.allocation("b"); a.Phase != topic.Allocating || !strings.Contains(a.Message, "all sources of pods") {
			t.Errorf("got %+v", a)
		}
		b.settle("b")
		b.says("b", "allocated")
		b.says("a", "")
	})
}

func TestTheDirectoryOfAStateFileIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	w := &writer{files: filesOf(dir, filepath.Join(dir, pluginsDir))}
	s := snapshot{devices: statefile.Devices{Registered: map[string][]string{gpu: {"g0"}}}}
	for range 2 {
		if err := w.write(s); err != nil || !there(w.devices) {
			t.Errorf("the file is there: %t, %v", there(w.devices), err)
		}
		if err := os.RemoveAll(filepath.Dir(w.devices)); err != nil {
			t.Fatal(err)
		}
	}
}
