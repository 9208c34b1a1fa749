package stats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/cri/cgroup/cgrouptest"
	"kubelot.dev/services/stats/internal/kmsg"
)

// A pod that has finished isn't measured, so what could not be read of it is no problem any more.
func TestAFinishedPodIsNoProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		n.add("uid-done", filepath.Join(t.TempDir(), "none"))
		n.summary(topic.SummaryRequest{})
		if n.health.get() != topic.Degraded {
			t.Errorf("the daemon is %s", n.health.get())
		}
		pleg := n.bus.Conn("pleg")
		defer pleg.Close()
		if err := topic.PLEGEvent.Writer(pleg).Set("uid-done", topic.PodObservation{
			Ref:       topic.Ref{Namespace: "ns", Name: "uid-done", UID: "uid-done"},
			Sandboxes: []topic.Sandbox{{ID: "box-uid-done", CreatedAt: time.Now()}},
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.summary(topic.SummaryRequest{})
		if n.health.get() != topic.Healthy {
			t.Errorf("after the pod has finished the daemon is %s: %s", n.health.get(), n.health.why())
		}
	})
}

// The runtime may start after this daemon. It is where --runtime-cgroups says, or else in its unit's cgroup.
func TestRuntimeThatStartsLater(t *testing.T) {
	for given, path := range map[string]string{"": "system.slice/containerd.service", "/runtime.slice": "runtime.slice"} {
		root := cgrouptest.Unpack(t, cgrouptest.V2)
		tree, err := cgroup.New(root, "systemd", "")
		if err != nil {
			t.Fatal(err)
		}
		r := &cgroups{tree: tree, rates: newRates(), system: systemCgroups(tree, "", given, "")}
		for _, want := range []bool{false, true} {
			u, err := r.node(false)
			if _, ok := u.system[statsapi.SystemContainerRuntime]; ok != want || err != nil {
				t.Errorf("the runtime's cgroup %s is read: %v, want %v; %v", path, ok, want, err)
			}
			dir := filepath.Join(root, "sys/fs/cgroup", path)
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "cpu.stat"),
				[]byte("usage_usec 7\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Kills from before the start count for their containers. They were reported at their time.
func TestEarlierKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		n.kills <- kmsg.Kill{Cgroup: "/kubepods/burstable/pod1/" + cgrouptest.App, LimitedCgroup: "/", Earlier: true}
		synctest.Wait()
		if got := n.metrics(pageCadvisor).value("container_oom_events_total", "container", "app"); got != 1 {
			t.Errorf("the container's kills are %v, want 1", got)
		}
		families, err := n.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "kubelot_stats_system_oom_kills_total" && f.GetMetric()[0].GetCounter().GetValue() > 0 {
				t.Error("the kill is reported again")
			}
		}
	})
}

// A node with many kills forgets the oldest of them only.
func TestManyKills(t *testing.T) {
	o := newOOMKills()
	id := func(i int) string { return fmt.Sprintf("%064x", i) }
	for i := range maxOOMKills + 10 {
		o.add(kmsg.Kill{Cgroup: "/kubepods/pod1/" + id(i)})
	}
	o.add(kmsg.Kill{Cgroup: "/kubepods/pod1/" + id(10)})
	counts := o.counts()
	if len(counts) != maxOOMKills || counts[id(9)] != 0 || counts[id(10)] != 2 || counts[id(maxOOMKills+9)] != 1 {
		t.Errorf("%d containers; the oldest have %d and %d, the newest %d", len(counts), counts[id(9)], counts[id(10)],
			counts[id(maxOOMKills+9)])
	}
}
