package stats

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	logs     string
	stop     func()
}

var ref = topic.Ref{Namespace: "ns", Name: "pod", UID: cgrouptest.UID}

// start runs the daemon on a tree, in a synctest bubble.
func start(t *testing.T, tree, driver string) *node {
	t.Helper()
	n := &node{
		t: t, bus: bustest.New(), runtime: critest.Start(t, critest.InMemory()), pages: http.NewServeMux(),
		health: &health{}, registry: prometheus.NewPedanticRegistry(), kills: make(chan kmsg.Kill), volume: t.TempDir(),
	}
	n.bus.Restrict(Contract, bus.Contract{Daemon: "podsync", Writes: []bus.Topic{topic.PodUpdate}},
		bus.Contract{Daemon: "pleg", Writes: []bus.Topic{topic.PLEGEvent}},
		bus.Contract{Daemon: "volume", Writes: []bus.Topic{topic.VolumeState}, Serves: []bus.Topic{topic.VolumeUsage}},
		bus.Contract{Daemon: "gc", Calls: []bus.Topic{topic.StatsSummary}},
		bus.Contract{Daemon: "status", Reads: []bus.Topic{topic.KubeEvent}})
	conn := n.bus.Conn("stats")
	n.caller = n.bus.Conn("gc")
	cfg := &config.Config{
		NodeName: "node", RootDir: t.TempDir(), PodLogsDir: t.TempDir(),
		Kubelet: kubeletv1beta1.KubeletConfiguration{
			CgroupDriver: driver, VolumeStatsAggPeriod: metav1.Duration{Duration: time.Minute},
			RuntimeRequestTimeout: metav1.Duration{Duration: time.Minute},
		},
	}
	env := daemon.Env{
		Config: cfg, Bus: conn, Log: slog.New(slog.DiscardHandler), Health: n.health,
		Metrics: n.registry, Pages: n.pages,
	}
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
	n.logs = cfg.PodLogsDir
	n.publish()
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
func (n *node) publish() {
	n.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: cgrouptest.UID}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
	}
	log := filepath.Join(n.logs, "ns_pod_"+cgrouptest.UID, "app", "0.log")
	err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, make([]byte, 20000), 0o644),
		os.WriteFile(filepath.Join(n.volume, "file"), make([]byte, 100000), 0o644), os.Link(filepath.Join(n.volume, "file"),
			filepath.Join(n.volume, "again")),
		set(n, "podsync", topic.PodUpdate, topic.Pod{Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing}),
		set(n, "volume", topic.VolumeState, topic.PodVolumes{
			Ref: ref, Phase: topic.VolumeMounted,
			Volumes: map[string]topic.Volume{
				"data": {Phase: topic.VolumeMounted, HostPath: n.volume}, "host": {Phase: topic.VolumeMounted, HostPath: "/"},
			},
		}),
		set(n, "pleg", topic.PLEGEvent, topic.PodObservation{
			Ref: ref, Sandboxes: []topic.Sandbox{{ID: cgrouptest.Box, Ready: true, CreatedAt: time.Now()}},
			Containers: []topic.Container{
				{
					ID: cgrouptest.App, SandboxID: cgrouptest.Box, Name: "app", Image: "image:1", State: topic.ContainerRunning,
					CreatedAt: time.Now(),
				},
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
