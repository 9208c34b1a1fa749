package resource

import (
	"errors"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/statefile"
)

var oneCPU = map[corev1.ResourceName]string{"cpu": "1", "memory": "1Gi"}

// Under the policy none nobody is kept to CPUs: containers that a policy has kept to some are to have all again,
// however often the daemon is killed before podsync has seen to it. Their users hear of it.
func TestAPolicyThatIsSwitchedOffLeavesNobodyOnFewCPUs(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		pod := b.wants("alone", oneCPU)
		b.says("alone", "allocated")
		if got := b.node().SharedCPUs; got != "0,2-3" {
			t.Fatalf("under static the CPUs %s are shared", got)
		}
		b.stop()
		b.policy = cpus.PolicyNone
		for round := range 2 {
			b.start()
			b.settle("alone")
			if a := b.allocation("alone"); len(a.Containers) > 0 {
				t.Errorf("it is said to have %+v", a.Containers)
			}
			// podsync has started with the policy, too: no pod waits for the daemon any more.
			if err := b.pods.Set("alone", topic.Pod{Pod: pod, Lifecycle: topic.Syncing}); err != nil {
				t.Fatal(err)
			}
			if got := b.node().SharedCPUs; got != "0-3" {
				t.Errorf("the containers are to have the CPUs %q", got)
			}
			if a := b.allocation("alone"); round == 1 && a.Phase != "" {
				t.Errorf("it is said to have something: %+v", a)
			}
			b.stop()
		}
		b.start()
		want := []string{"alone ExclusiveResourcesReleased: Container app shares the CPUs 1 with others again: the policy " +
			"is none now"}
		if !slices.Equal(b.events, want) {
			t.Errorf("Events %q, want %q", b.events, want)
		}
	})
}

// A file of version 1 has no pods: what it says is passed over, which is logged.
func TestAStateFileOfVersion1(t *testing.T) {
	h := &holdings{devices: devices.New()}
	var errs [2]error
	h.cpus, errs[0] = cpus.New(cpus.Config{Policy: cpus.PolicyNone})
	h.memory, errs[1] = memory.New(memory.PolicyNone, nil, nil)
	dir := t.TempDir()
	f := filesOf(dir, dir)
	const old = `{"policyName":"static","defaultCpuSet":"0,3","entries":{"c1":"1","c2":"2"},"checksum":0}`
	if err := errors.Join(errs[0], errs[1], os.WriteFile(f.cpus, []byte(old), 0o600)); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	found := h.recall(f, predecessor{}, time.Time{}, slog.New(slog.NewTextHandler(&said, nil)))
	if !strings.Contains(said.String(), "map[c1:1 c2:2]") || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("it says %q", said.String())
	}
	if !found.unpinned.cpus {
		t.Error("the containers are not to have all CPUs")
	}
}

func TestANodeThatNeverHadAPolicyLeavesCPUsAlone(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.stop()
		b.start()
		if n := b.node(); n.SharedCPUs != "" || n.SharedMemoryNodes != "" {
			t.Errorf("the node's containers are to have %+v", n)
		}
	})
}

// A container that loses its memory may be anywhere.
func TestReleasedMemoryComesFromAllNodes(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.stop()
		f := filesOf(b.dir, b.dir)
		saved, err := statefile.ReadMemory(f.memory)
		if err != nil {
			t.Fatal(err)
		}
		saved.Policy = "Static"
		saved.Entries = memory.Entries{"u": {"app": {{Nodes: []int{0}, Type: "memory", Size: 1 << 30}}}}
		if err := statefile.WriteMemory(f.memory, saved); err != nil {
			t.Fatal(err)
		}
		b.start()
		if got := b.node().SharedMemoryNodes; got != "0" {
			t.Errorf("the containers are to have memory of the nodes %q", got)
		}
		b.stop()
		b.start()
		if got := b.node().SharedMemoryNodes; got != "0" {
			t.Errorf("after a restart they are to have memory of the nodes %q", got)
		}
	})
}

// A pod that gets nothing for itself under a policy doesn't wait for a disk that is full.
func TestAPodWithoutAnythingDoesNotWaitForTheDisk(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		b.mu.Lock()
		b.written = errors.New("no space left on device")
		b.mu.Unlock()
		b.wants("plain", nil)
		b.says("plain", "allocated")
		b.wants("alone", oneCPU)
		b.says("alone", "allocating: waiting for device plugins to allocate its devices")
		b.mu.Lock()
		b.written = nil
		b.mu.Unlock()
	})
}

// Each write waits for the disk: only the file whose content is another one is written.
func TestOnlyFilesThatChangeAreWritten(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		b.lists(gpu, "g0")
		b.wants("first", map[corev1.ResourceName]string{gpu: "1"})
		synctest.Wait()
		f := filesOf(b.dir, b.dir)
		stat := func(path string) os.FileInfo {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		before := map[string]os.FileInfo{f.cpus: stat(f.cpus), f.memory: stat(f.memory), f.devices: stat(f.devices)}
		b.wants("alone", oneCPU)
		b.says("alone", "allocated")
		for path, old := range before {
			if rewritten := !os.SameFile(old, stat(path)); rewritten != (path == f.cpus) {
				t.Errorf("%s: written again: %t", path, rewritten)
			}
		}
		// Plugins register again when their directory is emptied, and what is removed is written again.
		if err := os.Remove(f.memory); err != nil {
			t.Fatal(err)
		}
		b.wants("second", oneCPU)
		b.says("second", "allocated")
		stat(f.memory)
	})
}

// Without a checkpoint nobody knows which devices the Node has: those that an earlier agent has left become 0, once.
// What somebody advertises later stays.
func TestLeftoverDevicesBecomeZero(t *testing.T) {
	inBubble(t, func(b *bed) {
		gone := func(when string, want ...corev1.ResourceName) {
			if got := b.node().Gone; !slices.Equal(got, want) {
				t.Errorf("%s %v are gone", when, got)
			}
		}
		b.lists(nic, "n0")
		b.registers(map[corev1.ResourceName]string{"cpu": "4", gpu: "2", nic: "1", "hugepages-2Mi": "0", dongle: "0"})
		gone("at first", gpu)
		b.stop()
		b.claims = &told{}
		b.start()
		gone("after a restart, before the Node has lost any,", gpu)
		b.registers(map[corev1.ResourceName]string{"cpu": "4", gpu: "0", nic: "1", dongle: "0"})
		b.registers(map[corev1.ResourceName]string{"cpu": "4", gpu: "0", nic: "1", dongle: "3"})
		gone("after it has lost them")
		// From now on a checkpoint says it.
		b.stop()
		b.start()
		b.registers(map[corev1.ResourceName]string{gpu: "2", dongle: "3"})
		gone("after a second restart")
	})
}

// dongle is advertised by an administrator.
const dongle = "example.com/dongle"

// A node without device plugins wakes and restarts. What is advertised on the Node meanwhile isn't an earlier agent's.
func TestARestartLeavesWhatOthersAdvertise(t *testing.T) {
	for name, lose := range map[string]func(b *bed) error{
		"the bus is lost":        func(b *bed) error { b.loses(); return nil },
		"the checkpoint is lost": func(b *bed) error { return os.Remove(filesOf(b.dir, b.dir).devices) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.registers(nil)
				b.stop()
				if err := lose(b); err != nil {
					t.Fatal(err)
				}
				b.registers(map[corev1.ResourceName]string{dongle: "4"})
				b.start()
				if got := b.node().Gone; len(got) > 0 {
					t.Errorf("%v are gone", got)
				}
			})
		})
	}
}

// A pod whose containers lose all that they had for themselves runs on, as the Event says, also if it would not get it
// again.
func TestAPodThatLosesAllRunsOn(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		pod := b.wants("a", map[corev1.ResourceName]string{"cpu": "2", "memory": "1Mi"})
		b.wants("b", map[corev1.ResourceName]string{"cpu": "1", "memory": "1Mi"})
		for range 2 { // the second start knows of the loss from the bus alone
			b.stop()
			b.reserved = cpuset.New(0, 1)
			b.start()
			if a := b.allocation("a"); a.Phase != topic.Allocated || a.Containers["app"].CPUs != "" {
				t.Errorf("it doesn't run on with shared CPUs: %+v", a)
			}
		}
		b.state(pod, topic.Terminated)
		b.state(pod, topic.Syncing)
		if a := b.allocation("a"); a.Phase != topic.AllocationRefused {
			t.Errorf("when it begins anew there is one CPU for its two, and got %+v", a)
		}
	})
}

// Without the file of CPUs the bus tells which containers have which: they run on them, and others mustn't get them.
func TestWithoutItsFileCPUsStay(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"it is removed": os.Remove,
		"it is damaged": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.static()
				one := map[corev1.ResourceName]string{"cpu": "1", "memory": "1Mi"}
				first := b.wants("a", one)
				b.wants("b", one)
				b.state(first, topic.Terminated)
				before := b.allocation("b").Containers
				b.stop()
				if err := change(filesOf(b.dir, b.dir).cpus); err != nil {
					t.Fatal(err)
				}
				b.start()
				if a := b.allocation("b").Containers; len(a) == 0 || !reflect.DeepEqual(a, before) {
					t.Errorf("the bus says %+v, want %+v", a, before)
				}
			})
		})
	}
}

// Without the file of devices the bus tells which pods have which, and what their plugins have answered.
func TestWithoutItsFileDevicesStay(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"it is removed": os.Remove,
		"it is damaged": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.lists(gpu, "g0", "g1", "g2")
				b.lists(nic, "n0")
				b.wants("a", map[corev1.ResourceName]string{gpu: "2", nic: "1"})
				b.says("a", "allocated")
				before := b.allocation("a")
				b.stop()
				if err := change(filesOf(b.dir, b.dir).devices); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second start has a file again
					b.start()
					if a := b.allocation("a"); !reflect.DeepEqual(a, before) {
						t.Errorf("before its plugins are back the bus says %+v, want %+v", a, before)
					}
					time.Sleep(2 * devices.Grace)
					b.lists(gpu, "g0", "g1", "g2")
					b.lists(nic, "n0")
					if a := b.allocation("a"); !reflect.DeepEqual(a, before) {
						t.Errorf("the bus says %+v, want %+v", a, before)
					}
					b.stop()
				}
				b.start()
				b.lists(gpu, "g0", "g1", "g2")
				b.wants("b", map[corev1.ResourceName]string{gpu: "2"})
				if a := b.allocation("b"); a.Phase != topic.AllocationRefused {
					t.Errorf("another pod gets its device: %+v", a)
				}
				if calls := b.calls(); len(calls) != 2 {
					t.Errorf("the plugins were asked: %q", calls)
				}
			})
		})
	}
}

// What a plugin had that is gone for good becomes 0 once: what somebody advertises later stays.
func TestWhatIsAdvertisedAfterAPluginStays(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.service.report(b.t.Context(), deviceplugin.Report{Resource: gpu, Away: true})
		b.registers(map[corev1.ResourceName]string{gpu: "1"})
		time.Sleep(devices.Grace + time.Second)
		if gone := b.node().Gone; !slices.Equal(gone, []corev1.ResourceName{gpu}) {
			t.Fatalf("gone are %q", gone)
		}
		b.registers(map[corev1.ResourceName]string{gpu: "0"})
		b.registers(map[corev1.ResourceName]string{gpu: "8"})
		if gone := b.node().Gone; len(gone) > 0 {
			t.Errorf("%q would become 0 again", gone)
		}
	})
}

// A pod that ends while it is taken over from a kubelet is given nothing any more, but runs: what it has is said.
func TestWhatAPodHasIsSaidWhileItEnds(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		pod := b.wants("a", oneCPU)
		b.says("a", "allocated")
		has := b.allocation("a").Containers["app"].CPUs
		b.stop()
		b.unsaid("a")
		b.state(pod, topic.Terminating)
		b.start()
		if a := b.allocation("a"); a.Phase != topic.Allocating || has == "" || a.Containers["app"].CPUs != has {
			t.Errorf("it had the CPUs %q, and the bus says %+v", has, a)
		}
	})
}
