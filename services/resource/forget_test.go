package resource

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/statefile"
)

// A plugin that is gone for good isn't waited for after a restart. As long as the Node still has its devices, nobody
// starts without them.
func TestAPluginThatIsGoneForGoodIsForgotten(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.registers(map[corev1.ResourceName]string{gpu: "1"})
		b.lists(gpu, "g0")
		b.service.report(b.t.Context(), deviceplugin.Report{Resource: gpu, Away: true})
		time.Sleep(devices.Grace + time.Minute)
		synctest.Wait()
		b.stop()
		b.start()
		if n := b.node(); len(n.Devices) > 0 || !slices.Equal(n.Gone, []corev1.ResourceName{gpu}) {
			t.Errorf("after a restart the node has %+v", n)
		}
		limits := map[corev1.ResourceName]string{gpu: "1"}
		b.wants("a", limits)
		b.says("a", "refused UnexpectedAdmissionError: Allocate failed due to cannot allocate unregistered device "+gpu+
			", which is unexpected")
		b.registers(map[corev1.ResourceName]string{gpu: "0"})
		b.wants("b", limits)
		b.says("b", "allocated") // others may count it: podsync compares with the Node
	})
}

// After a reboot one plugin is back, and the daemon is killed before the other one is. Pods get the same from both.
func TestKilledAfterARebootWhileAPluginIsAway(t *testing.T) {
	for name, booted := range map[string]string{"": "another", ", and had been killed before": earlierBoot} {
		t.Run("a reboot"+name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.lists(gpu, "g0")
				b.lists(nic, "n0", "n1")
				b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
				b.wants("b", map[corev1.ResourceName]string{nic: "1"})
				b.stop()
				b.unsaid("a")
				b.unsaid("b")
				if err := os.WriteFile(filesOf(b.dir, b.dir).boot, []byte(booted), 0o600); err != nil {
					t.Fatal(err)
				}
				b.start()
				b.lists(gpu, "g0")
				b.says("a", "allocated")
				b.stop()
				b.start()
				b.lists(gpu, "g0")
				b.lists(nic, "n0", "n1", "n2")
				b.says("a", "allocated")
				b.says("b", "allocated")
				want := []string{
					"Allocate " + gpu + " g0", "Allocate " + nic + " n1", "Allocate " + gpu + " g0", "Allocate " + nic + " n1",
				}
				if got := b.calls(); !slices.Equal(got, want) {
					t.Errorf("asked %q, want %q", got, want)
				}
				// All have been asked: from now on the file is of this boot.
				b.stop()
				b.unsaid("b")
				b.start()
				b.says("b", "allocated")
				if got := b.calls(); len(got) != len(want) {
					t.Errorf("after another restart asked %q", got)
				}
			})
		})
	}
}

// A daemon that is killed between its two files never takes stale devices for those of this boot.
func TestStaleDevicesAreNeverTakenForFreshOnes(t *testing.T) {
	f := filesOf(t.TempDir(), t.TempDir())
	d := statefile.Devices{Registered: map[string][]string{gpu: {}}}
	if err := f.writeDevices(d, true); err != nil {
		t.Fatal(err)
	}
	boot, err := os.Stat(f.boot)
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.Stat(f.devices)
	if err != nil || written.ModTime().Before(boot.ModTime()) {
		t.Errorf("written at %v, the boot at %v: %v", written.ModTime(), boot.ModTime(), err)
	}
	if long := time.Unix(1, 0); !f.old(long) {
		t.Error("it seems to be of this boot")
	}
	if err := f.writeDevices(d, false); err != nil || f.old(time.Now().Add(time.Hour)) {
		t.Errorf("it doesn't seem to be of this boot, error %v", err)
	}
}

// A pod's stale devices stay its own while their plugin is asked, and where it doesn't answer.
func TestAPluginThatIsAwayAgainAfterAReboot(t *testing.T) {
	inBubble(t, func(b *bed) {
		limits := map[corev1.ResourceName]string{gpu: "1"}
		b.lists(gpu, "g0", "g1")
		b.wants("a", limits)
		b.stop()
		b.unsaid("a")
		if err := os.WriteFile(filesOf(b.dir, b.dir).boot, []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.fail = deviceplugin.ErrAway
		b.lists(gpu, "g0", "g1")
		if a := b.allocation("a"); a.Phase != topic.Allocating {
			t.Errorf("got %+v", a)
		}
		b.mu.Lock()
		b.fail = nil
		b.mu.Unlock()
		b.wants("b", limits)
		time.Sleep(tryAgain)
		for uid, want := range map[string]string{"a": "g1", "b": "g0"} {
			if d := b.allocation(uid).Containers["app"].Devices; len(d) != 1 || d[0].ID != want {
				t.Errorf("%s has %v, want %s", uid, d, want)
			}
		}
	})
}

// The kubelet counts each pod that it admits, whatever the policy.
func TestAllPodsAreCounted(t *testing.T) {
	inBubble(t, func(b *bed) {
		plain := asks("plain", "")
		for range 2 {
			if err := b.pods.Set("plain", topic.Pod{Pod: plain, Lifecycle: topic.Syncing}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		b.wants("a", nil)
		ended := asks("ended", "")
		if err := b.pods.Set("ended", topic.Pod{Pod: ended, Lifecycle: topic.Terminated}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := counted(t, b.registry); !slices.Equal(got, []string{"requests 2"}) {
			t.Errorf("counted %q", got)
		}
	})
}

// Each NUMA node has its number of CPUs, also where it is 0.
func TestCPUsPerNodeAreShown(t *testing.T) {
	inBubble(t, func(b *bed) {
		shown := func() map[string]float64 {
			families, err := b.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, family := range families {
				for _, m := range family.GetMetric() {
					if family.GetName() == "kubelet_cpu_manager_allocation_per_numa" {
						got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
					}
				}
			}
			return got
		}
		if got := shown(); len(got) > 0 {
			t.Errorf("under the policy none it shows %v", got)
		}
		b.two("pod")
		if got := shown(); !maps.Equal(got, map[string]float64{"0": 0, "1": 0}) {
			t.Errorf("nobody has any, and it shows %v", got)
		}
		b.come(asks("a", "cpu=3"))
		if got := shown(); !maps.Equal(got, map[string]float64{"0": 3, "1": 0}) {
			t.Errorf("it shows %v", got)
		}
	})
}

// Plugins that contradict each other are logged once for a container, however often it is said what it has.
func TestContradictionsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	h := &holdings{devices: devices.New()}
	var err error
	if h.cpus, err = cpus.New(cpus.Config{Policy: cpus.PolicyNone}); err != nil {
		t.Fatal(err)
	}
	if h.memory, err = memory.New(memory.PolicyNone, nil, nil); err != nil {
		t.Fatal(err)
	}
	spec := asks("a", "gpu=1 nic=1")
	for name, value := range map[string]string{gpu: "1", nic: "2"} {
		h.devices.Listed(name, []devices.Device{{ID: "d", Healthy: true}})
		r := h.devices.Reserve()
		if err := r.Keep(devices.Request{Pod: spec, Need: devices.Need{
			Container: "c0", Resource: name, Count: 1,
		}}); err != nil {
			t.Fatal(err)
		}
		answer, err := proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"SAME": value}})
		if err != nil || !r.Confirm(answer) {
			t.Fatal(err)
		}
	}
	b := publisher{holdings: h, plugins: &bed{options: map[string]int{}}, log: slog.New(slog.NewTextHandler(&log, nil))}
	p := &pod{spec: spec}
	for range 3 {
		b.containerAllocations("a", p)
	}
	if n := strings.Count(log.String(), "contradict"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}
