package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup/cgrouptest"
	"kubelot.dev/cri/critest"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/stats/internal/kmsg"
)

// node is a stats daemon with a pod, on a bus and a runtime in memory.
type node struct {
	t        *testing.T
	bus      *bustest.Bus
	caller   *bus.Conn
	runtime  *critest.Runtime
	pages    *http.ServeMux
	health   *health
	registry *prometheus.Registry
	kills    chan kmsg.Kill
	volume   string
	stop     func()
}

var ref = topic.Ref{Namespace: "ns", Name: "pod", UID: cgrouptest.UID}

// start runs the daemon on a tree, in a synctest bubble.
func start(t *testing.T, tree, driver string) *node {
	t.Helper()
	n := &node{t: t, bus: bustest.New(), runtime: critest.Start(t, critest.InMemory()), pages: http.NewServeMux(), health: &health{}, registry: prometheus.NewPedanticRegistry(), kills: make(chan kmsg.Kill), volume: t.TempDir()}
	n.bus.Restrict(Contract, bus.Contract{Daemon: "podsync", Writes: []bus.Topic{topic.PodUpdate}}, bus.Contract{Daemon: "pleg", Writes: []bus.Topic{topic.PLEGEvent}},
		bus.Contract{Daemon: "volume", Writes: []bus.Topic{topic.VolumeState}}, bus.Contract{Daemon: "gc", Calls: []bus.Topic{topic.StatsSummary}},
		bus.Contract{Daemon: "status", Reads: []bus.Topic{topic.KubeEvent}})
	conn := n.bus.Conn("stats")
	n.caller = n.bus.Conn("gc")
	cfg := &config.Config{NodeName: "node", RootDir: t.TempDir(), PodLogsDir: t.TempDir(), Kubelet: kubeletv1beta1.KubeletConfiguration{
		CgroupDriver: driver, VolumeStatsAggPeriod: metav1.Duration{Duration: time.Minute}, RuntimeRequestTimeout: metav1.Duration{Duration: time.Minute},
	}}
	env := daemon.Env{Config: cfg, Bus: conn, Log: slog.New(slog.DiscardHandler), Health: n.health, Metrics: n.registry, Pages: n.pages}
	env.Events = recorder{topic.KubeEvent.Publisher(conn)}
	s, err := New(env, Ports{
		Machine: func() (topic.Machine, error) {
			return topic.Machine{NumCores: 2, MemoryBytes: 1 << 30, PIDLimit: 1000, KernelVersion: "6"}, nil
		},
		FSRoot: cgrouptest.Unpack(t, tree), Runtime: n.runtime.Client(t, 0),
		Kills: func(ctx context.Context, found func(kmsg.Kill)) error {
			for {
				select {
				case k := <-n.kills:
					found(k)
				case <-ctx.Done():
					return nil
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	n.publish(cfg.PodLogsDir)
	synctest.Wait()
	n.stop = func() {
		cancel()
		wg.Wait()
		conn.Close()
		n.caller.Close()
	}
	return n
}

type recorder struct{ out *bus.Publisher[topic.Event] }

func (r recorder) Record(e topic.Event) { _ = r.out.Publish("stats", e) }

// publish says what the other daemons would say of the pod, and writes its files.
func (n *node) publish(logs string) {
	n.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: cgrouptest.UID}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
	}
	log := filepath.Join(logs, "ns_pod_"+cgrouptest.UID, "app", "0.log")
	err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, make([]byte, 20000), 0o644),
		os.WriteFile(filepath.Join(n.volume, "file"), make([]byte, 100000), 0o644), os.Link(filepath.Join(n.volume, "file"), filepath.Join(n.volume, "again")),
		set(n, "podsync", topic.PodUpdate, topic.Pod{Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing}),
		set(n, "volume", topic.VolumeState, topic.PodVolumes{Ref: ref, Phase: topic.VolumeMounted, Volumes: map[string]topic.Volume{
			"data": {Phase: topic.VolumeMounted, HostPath: n.volume}, "host": {Phase: topic.VolumeMounted, HostPath: "/"},
		}}),
		set(n, "pleg", topic.PLEGEvent, topic.PodObservation{
			Ref: ref, Sandboxes: []topic.Sandbox{{ID: cgrouptest.Box, Ready: true, CreatedAt: time.Now()}},
			Containers: []topic.Container{
				{ID: cgrouptest.App, SandboxID: cgrouptest.Box, Name: "app", Image: "image:1", State: topic.ContainerRunning, CreatedAt: time.Now()},
				{ID: "gone", SandboxID: cgrouptest.Box, Name: "app", State: topic.ContainerExited},
			},
		}))
	if err != nil {
		n.t.Fatal(err)
	}
}

func set[T any](n *node, daemon string, t bus.State[T], v T) error {
	conn := n.bus.Conn(daemon)
	n.t.Cleanup(conn.Close)
	w := t.Writer(conn)
	return errors.Join(w.Set(cgrouptest.UID, v), w.Flush(n.t.Context()))
}

func (n *node) summary(req topic.SummaryRequest) statsapi.Summary {
	n.t.Helper()
	s, err := topic.StatsSummary.Do(n.t.Context(), n.caller, req)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

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

// A light answer has the number of processes where it is asked for, and no disks all the same.
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
	if c.Name != "app" || c.CPU.UsageNanoCores == nil || *c.CPU.UsageCoreNanoSeconds < 42e6 || *c.Memory.AvailableBytes+*c.Memory.WorkingSetBytes != 64<<20 {
		t.Errorf("container %+v, cpu %+v, memory %+v", c, c.CPU, c.Memory)
	}
	if *p.ProcessStats.ProcessCount != 2 || *c.Logs.UsedBytes != 20480 || *c.Logs.InodesUsed != 1 {
		t.Errorf("processes %d, logs %d", *p.ProcessStats.ProcessCount, *c.Logs.UsedBytes)
	}
	if len(p.VolumeStats) != 1 || p.VolumeStats[0].Name != "data" || *p.VolumeStats[0].InodesUsed != 2 || *p.VolumeStats[0].UsedBytes < 100000 || *p.VolumeStats[0].UsedBytes > 120000 {
		t.Errorf("volumes %+v: want data alone, its linked file counted once", p.VolumeStats)
	}
	if want := *c.Logs.UsedBytes + *p.VolumeStats[0].UsedBytes; *p.EphemeralStorage.UsedBytes != want {
		t.Errorf("local storage %d, want %d", *p.EphemeralStorage.UsedBytes, want)
	}
	if s.Node.Fs == nil || s.Node.Runtime.ImageFs == nil || *s.Node.Runtime.ImageFs.UsedBytes != 1<<20 || *s.Node.Rlimit.MaxPID != 1000 {
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
		if took := time.Since(began); took > patience+time.Second || s.Pods[0].CPU == nil || s.Pods[0].Containers[0].Rootfs != nil || s.Node.Runtime.ImageFs != nil {
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
		n.kills <- kmsg.Kill{Constraint: "CONSTRAINT_MEMCG", LimitedCgroup: "/kubepods/burstable/pod1", Cgroup: "/kubepods/burstable/pod1/" + cgrouptest.App, Process: "hog", PID: 1}
		n.kills <- kmsg.Kill{Constraint: "CONSTRAINT_NONE", LimitedCgroup: "/", Cgroup: "/system.slice", Process: "hog", PID: 7}
		e := (<-events).Value
		if e.Kind != "Node" || e.Name != "node" || e.Reason != "SystemOOM" || e.Type != "Warning" || e.Message != "System OOM encountered, victim process: hog, pid: 7" {
			t.Errorf("event %+v", e)
		}
		page := n.metrics(pageCadvisor)
		if got := page.value("container_oom_events_total", "container", "app"); got != 1 {
			t.Errorf("the container's kills are %v, want 1", got)
		}
	})
}

type scraped map[string][]sample

type sample struct {
	labels map[string]string
	value  float64
}

func (f scraped) value(name, label, want string) float64 {
	for _, s := range f[name] {
		if s.labels[label] == want {
			return s.value
		}
	}
	return -1
}

// metrics reads a page with Prometheus' own parser.
func (n *node) metrics(page string) scraped {
	n.t.Helper()
	w := httptest.NewRecorder()
	n.pages.ServeHTTP(w, httptest.NewRequestWithContext(n.t.Context(), http.MethodGet, page, nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		n.t.Fatalf("%s: %v", page, err)
	}
	all := scraped{}
	for name, family := range parsed {
		for _, m := range family.GetMetric() {
			s := sample{labels: map[string]string{}, value: m.GetGauge().GetValue() + m.GetCounter().GetValue()}
			for _, pair := range m.GetLabel() {
				s.labels[pair.GetName()] = pair.GetValue()
			}
			all[name] = append(all[name], s)
		}
	}
	return all
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V2, "systemd")
		defer n.stop()
		resource := n.metrics(pageResource)
		if resource.value("resource_scrape_error", "", "") != 0 || resource.value("container_memory_working_set_bytes", "container", "app") != 802816 || resource.value("pod_cpu_usage_seconds_total", "pod", "pod") <= 0 {
			t.Errorf("resource metrics %v", resource)
		}
		all := n.metrics(pageCadvisor)
		for name, want := range map[string]float64{
			"container_memory_usage_bytes": 5713920, "container_memory_rss": 110592, "container_spec_memory_limit_bytes": 64 << 20, "container_cpu_cfs_throttled_periods_total": 3,
			"container_processes": 2, "container_pressure_cpu_waiting_seconds_total": .001234, "container_oom_events_total": 1, "container_memory_swap": 4096,
		} {
			if got := all.value(name, "container", "app"); got != want {
				t.Errorf("%s of the container is %v, want %v", name, got, want)
			}
		}
		if got := all.value("container_spec_memory_limit_bytes", "id", "/"); got != 1<<30 {
			t.Errorf("the node's memory limit is %v, want what the machine has", got)
		}
		if all.value("machine_cpu_cores", "", "") != 2 || all.value("container_fs_limit_bytes", "id", "/") <= 0 || all.value("container_cpu_usage_seconds_total", "cpu", "total") <= 0 {
			t.Error("the node's metrics are missing")
		}
		w := httptest.NewRecorder()
		n.pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, pageSummary, nil))
		var s statsapi.Summary
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || len(s.Pods) != 1 {
			t.Errorf("summary page: %v, %+v", err, s)
		}
	})
}
