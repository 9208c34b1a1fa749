package stats

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup/cgrouptest"
	"kubelot.dev/cri/critest"
	"kubelot.dev/services/stats/internal/kmsg"
)

func TestSummary(t *testing.T) {
	for name, tree := range map[string][2]string{"v1": {cgrouptest.V1, "cgroupfs"}, "v2": {cgrouptest.V2, "systemd"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, tree[0], tree[1])
				defer n.stop()
				for _, req := range []topic.SummaryRequest{{}, {Pods: []string{cgrouptest.UID}, MaxAge: time.Second}} {
					checkSummary(t, n.summary(req))
				}
				if s := n.summary(topic.SummaryRequest{Pods: []string{"none"}}); len(s.Pods) > 0 || s.Node.NodeName != "node" {
					t.Errorf("asked for an unknown pod: %+v", s)
				}
			})
		})
	}
}

// A light answer has the number of processes where it is asked for, and no disks nevertheless.
func TestProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V2, "systemd")
		defer n.stop()
		if p := n.summary(topic.SummaryRequest{OnlyCPUAndMemory: true}).Pods[0]; p.ProcessStats != nil {
			t.Errorf("processes %+v: nobody asked", p.ProcessStats)
		}
		p := n.summary(topic.SummaryRequest{OnlyCPUAndMemory: true, Processes: true}).Pods[0]
		if p.ProcessStats == nil || *p.ProcessStats.ProcessCount != 2 || p.VolumeStats != nil || p.Containers[0].Logs != nil {
			t.Errorf("processes %+v of pod %+v", p.ProcessStats, p)
		}
	})
}

func checkSummary(t *testing.T, s statsapi.Summary) {
	t.Helper()
	if len(s.Pods) != 1 || s.Pods[0].PodRef.Name != "pod" || len(s.Pods[0].Containers) != 1 {
		t.Fatalf("pods %+v", s.Pods)
	}
	p, c := s.Pods[0], s.Pods[0].Containers[0]
	if c.Name != "app" || c.CPU.UsageNanoCores == nil || *c.CPU.UsageCoreNanoSeconds < 42e6 ||
		*c.Memory.AvailableBytes+*c.Memory.WorkingSetBytes != 64<<20 {
		t.Errorf("container %+v, cpu %+v, memory %+v", c, c.CPU, c.Memory)
	}
	if *p.ProcessStats.ProcessCount != 2 || *c.Logs.UsedBytes != 20480 || *c.Logs.InodesUsed != 1 {
		t.Errorf("processes %d, logs %d", *p.ProcessStats.ProcessCount, *c.Logs.UsedBytes)
	}
	if len(p.VolumeStats) != 1 || p.VolumeStats[0].Name != "data" || *p.VolumeStats[0].InodesUsed != 2 ||
		*p.VolumeStats[0].UsedBytes < 100000 || *p.VolumeStats[0].UsedBytes > 120000 {
		t.Errorf("volumes %+v: want data alone, its linked file counted once", p.VolumeStats)
	}
	if want := *c.Logs.UsedBytes + *p.VolumeStats[0].UsedBytes; *p.EphemeralStorage.UsedBytes != want {
		t.Errorf("local storage %d, want %d", *p.EphemeralStorage.UsedBytes, want)
	}
	if s.Node.Fs == nil || s.Node.Runtime.ImageFs == nil || *s.Node.Runtime.ImageFs.UsedBytes != 1<<20 ||
		*s.Node.Rlimit.MaxPID != 1000 {
		t.Errorf("node %+v", s.Node)
	}
	if len(s.Node.SystemContainers) == 0 || s.Node.SystemContainers[len(s.Node.SystemContainers)-1].Name != "pods" {
		t.Errorf("system containers %+v", s.Node.SystemContainers)
	}
}

// A runtime that hangs costs the answer what only the runtime knows, and five seconds once.
// The disks of all pods are read side by side.
func TestTheVolumesOfManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		const pods = 100
		for i := range pods {
			n.add(fmt.Sprintf("uid-%d", i), n.volume)
		}
		read := 0
		for _, p := range n.summary(topic.SummaryRequest{}).Pods {
			for _, v := range p.VolumeStats {
				if v.Name == "data" && v.UsedBytes != nil && *v.UsedBytes >= 100000 {
					read++
				}
			}
		}
		if read != pods+1 {
			t.Errorf("the volumes of %d pods were read, want %d", read, pods+1)
		}
	})
}

func TestRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		n.runtime.On("ListContainerStats", critest.Hang)
		n.runtime.On("ImageFsInfo", critest.Hang)
		began := time.Now()
		s := n.summary(topic.SummaryRequest{})
		if took := time.Since(began); took > patience+time.Second || s.Pods[0].CPU == nil ||
			s.Pods[0].Containers[0].Rootfs != nil || s.Node.Runtime.ImageFs != nil {
			t.Errorf("after %v: %+v", took, s)
		}
		if n.health.get() != topic.Degraded {
			t.Error("the daemon says that it is healthy")
		}
		n.runtime.On("ListContainerStats", nil)
		n.runtime.On("ImageFsInfo", nil)
		time.Sleep(2 * time.Minute)
		if s = n.summary(topic.SummaryRequest{}); s.Node.Runtime.ImageFs == nil || n.health.get() != topic.Healthy {
			t.Errorf("%s, image filesystem %+v, after the runtime came back", n.health.get(), s.Node.Runtime.ImageFs)
		}
	})
}

// Whoever asks at the same time gets the same reading.
func TestReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		n.runtime.On("ListContainerStats", func(context.Context, any) error { time.Sleep(time.Second); return nil })
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { n.summary(topic.SummaryRequest{}) })
		}
		wg.Wait()
		if calls := n.runtime.Calls("ListContainerStats"); calls != 1 {
			t.Errorf("%d calls for ten answers, want 1", calls)
		}
		time.Sleep(diskAge + time.Second)
		n.summary(topic.SummaryRequest{})
		n.summary(topic.SummaryRequest{OnlyCPUAndMemory: true})
		if calls := n.runtime.Calls("ListContainerStats"); calls != 2 {
			t.Errorf("%d calls, want a second one later", calls)
		}
		time.Sleep(time.Hour)
		if calls := n.runtime.Calls("ListContainerStats"); calls != 2 {
			t.Errorf("%d calls: nothing is read that nobody asks for", calls)
		}
	})
}

func TestOutOfMemoryKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		reader := n.bus.Conn("status")
		defer reader.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := topic.KubeEvent.Subscribe(ctx, reader, bus.From{})
		n.kills <- kmsg.Kill{
			Constraint: "CONSTRAINT_MEMCG", LimitedCgroup: "/kubepods/burstable/pod1",
			Cgroup: "/kubepods/burstable/pod1/" + cgrouptest.App, Process: "hog", PID: 1,
		}
		n.kills <- kmsg.Kill{
			Constraint: "CONSTRAINT_NONE", LimitedCgroup: "/", Cgroup: "/system.slice",
			Process: "hog", PID: 7,
		}
		e := (<-events).Value
		if e.Kind != "Node" || e.Name != "node" || e.Reason != "SystemOOM" || e.Type != "Warning" ||
			e.Message != "System OOM encountered, victim process: hog, pid: 7" {
			t.Errorf("event %+v", e)
		}
		page := n.metrics(pageCadvisor)
		if got := page.value("container_oom_events_total", "container", "app"); got != 1 {
			t.Errorf("the container's kills are %v, want 1", got)
		}
	})
}
