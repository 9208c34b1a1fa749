package cri

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
	"kubelot.dev/cri/labels"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon"
	"kubelot.dev/services/pleg"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/images"
)

// patience bounds a test: the machine does other things too.
const patience = 5 * time.Minute

// bed is one containerd for all tests, since its start takes seconds.
var bed *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var err error
	if bed, err = cluster.Start(ctx, cluster.Options{Out: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, "containerd can't be started:", err)
		return 1
	}
	code := m.Run()
	if err := bed.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the test bed can't be removed:", err)
		return 1
	}
	return code
}

func dial(t *testing.T) *cri.Client {
	t.Helper()
	client, err := cri.Dial("unix://"+bed.CRI.Socket, cri.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestContainerdMeetsTheSuite(t *testing.T) {
	client := dial(t)
	version, err := client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	critest.Suite(t, critest.Target{
		Client: client, Image: images.BusyboxRef, LogDir: t.TempDir(), CgroupParent: bed.Bed.CgroupRoot,
		NoSandboxEvents: version.GetRuntimeName() == "cri-o",
	})
}

type health struct{ log *slog.Logger }

func (h health) Set(state topic.HealthState, message string) {
	h.log.Info("health", "state", state, "message", message)
}

// startPLEG runs a pleg on containerd and returns a reader's connection to its bus.
func startPLEG(t *testing.T, client *cri.Client) *bus.Conn {
	t.Helper()
	hub := bustest.New()
	hub.Restrict(pleg.Contract, bus.Contract{Daemon: "reader", Reads: []bus.Topic{topic.PLEGEvent, topic.NodeRuntime}})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	conn, reader := hub.ConnWithLog("pleg", log), hub.Conn("reader")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		env := daemon.Env{Bus: conn, Log: log, Metrics: prometheus.NewRegistry(), Health: health{log}}
		if err := pleg.New(client, env, pleg.Options{MaxImages: 50}).Run(ctx); err != nil {
			t.Errorf("pleg: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		conn.Close()
		reader.Close()
	})
	return reader
}

// TestPLEGIsFast measures from containerd's event of an exit to the observation on the bus, and holds it against how
// long a reading of the pod takes on this machine at this time.
func TestPLEGIsFast(t *testing.T) {
	client := dial(t)
	reader := startPLEG(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	type stop struct {
		id string
		at time.Time
	}
	stops := make(chan stop, 100)
	var wg sync.WaitGroup
	defer wg.Wait()
	streamCtx, endStream := context.WithCancel(ctx)
	defer endStream()
	wg.Go(func() {
		_ = client.GetContainerEvents(streamCtx, func(e *runtimeapi.ContainerEventResponse) {
			if e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				stops <- stop{e.GetContainerId(), time.Now()}
			}
		})
	})
	changes, err := topic.PLEGEvent.Watch(ctx, reader)
	if err != nil {
		t.Fatal(err)
	}
	waitForStream(ctx, t, reader)

	const uid = "cri-fast"
	config := sandboxConfig(t, uid)
	box, err := client.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	defer removeSandbox(t, client, box)
	for n := 100; len(stops) == 0; n++ { // this process's stream may begin later than pleg's
		if err := client.StopContainer(ctx, startContainer(ctx, t, client, box, config, n), 0); err != nil {
			t.Fatal(err)
		}
	}
	var latencies, readings []time.Duration
	for i := range 20 {
		id := startContainer(ctx, t, client, box, config, i)
		if err := client.StopContainer(ctx, id, 0); err != nil {
			t.Fatal(err)
		}
		at := waitFor(ctx, t, changes, func(seen topic.PodObservation) bool {
			return slices.ContainsFunc(seen.Containers, func(c topic.Container) bool {
				return c.ID == id && c.State == topic.ContainerExited && c.ExitCode == 137
			})
		})
		var event stop
		for event.id != id {
			select {
			case event = <-stops:
			case <-ctx.Done():
				t.Fatalf("containerd told nothing of the end of %s: %v", id, context.Cause(ctx))
			}
		}
		// This process's two streams race: pleg may have had the event before.
		latencies = append(latencies, max(0, at.Sub(event.at)))
		began := time.Now()
		if _, err := observe.Pod(ctx, client, uid); err != nil {
			t.Fatal(err)
		}
		readings = append(readings, time.Since(began))
	}
	latency, reading := quartile(latencies), quartile(readings)
	t.Logf("event to observation: fast %s, slowest %s; a fast reading %s", latency, slices.Max(latencies), reading)
	if most := 10*time.Millisecond + 3*reading; latency > most {
		t.Errorf("three quarters take over %s, which is over %s: an exit doesn't reach podsync at once", latency, most)
	}
	if err := client.RemovePodSandbox(ctx, box); err != nil {
		t.Fatal(err)
	}
	removed := time.Now()
	for change := range changes {
		if change.Key == uid && change.Deleted {
			t.Logf("removal to tombstone: %s", time.Since(removed))
			return
		}
	}
	t.Fatal("the removed pod got no tombstone")
}

// quartile is what the fastest quarter takes at most, which depends little on what else the machine does.
func quartile(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/4]
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// TestObserveIsFast measures one whole reading of a pod, as podsync makes it after its own calls, and holds it against
// how long a single call takes on this machine at this time.
func TestObserveIsFast(t *testing.T) {
	client, ctx := dial(t), t.Context()
	config := sandboxConfig(t, "cri-observe")
	box, err := client.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	defer removeSandbox(t, client, box)
	id := startContainer(ctx, t, client, box, config, 0)
	var took, calls []time.Duration
	for range 50 {
		begin := time.Now()
		seen, err := observe.Pod(ctx, client, "cri-observe")
		if err != nil || len(seen.Containers) != 1 {
			t.Fatalf("observed %+v, %v", seen, err)
		}
		took = append(took, time.Since(begin))
		begin = time.Now()
		if _, err := client.ContainerStatus(ctx, id); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, time.Since(begin))
	}
	whole, call := median(took), median(calls)
	t.Logf("one pod: median %s, slowest %s; median of a call %s", whole, slices.Max(took), call)
	if most := 10*time.Millisecond + 10*call; whole > most {
		t.Errorf("the median of %s is over %s", whole, most)
	}
}

// TestPLEGOutlivesContainerd kills containerd: what runs goes on running, and pleg says so when it is back.
func TestPLEGOutlivesContainerd(t *testing.T) {
	client := dial(t)
	reader := startPLEG(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waitForStream(ctx, t, reader)
	config := sandboxConfig(t, "cri-outlive")
	box, err := client.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	defer removeSandbox(t, client, box)
	id := startContainer(ctx, t, client, box, config, 0)
	pods, err := topic.PLEGEvent.Watch(ctx, reader, "cri-outlive")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, pods, func(seen topic.PodObservation) bool {
		return len(seen.Containers) == 1 && seen.Containers[0].State == topic.ContainerRunning
	})
	nodes, err := topic.NodeRuntime.Watch(ctx, reader)
	if err != nil {
		t.Fatal(err)
	}
	bed.CRI.Stop()
	begin := time.Now()
	for change := range nodes {
		if !change.Synced && !change.Value.Reachable {
			break
		}
	}
	t.Logf("found unreachable after %s", time.Since(begin))
	if seen, err := topic.PLEGEvent.Read(ctx, reader); err != nil || len(seen["cri-outlive"].Containers) != 1 {
		t.Errorf("while containerd is away the bus has %+v, %v", seen, err)
	}
	if err := bed.CRI.Launch(ctx); err != nil {
		t.Fatal(err)
	}
	waitForStream(ctx, t, reader)
	if err := client.StopContainer(ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	changes, err := topic.PLEGEvent.Watch(ctx, reader, "cri-outlive")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, changes, func(seen topic.PodObservation) bool {
		return len(seen.Containers) == 1 && seen.Containers[0].ID == id && seen.Containers[0].State == topic.ContainerExited
	})
}

func waitForStream(ctx context.Context, t *testing.T, reader *bus.Conn) {
	t.Helper()
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, err := topic.NodeRuntime.Watch(watchCtx, reader)
	if err != nil {
		t.Fatal(err)
	}
	for change := range nodes {
		if change.Value.EventStream && change.Value.Reachable {
			return
		}
	}
	t.Fatal("the event stream never opened")
}

// waitFor waits for an observation and returns when it came.
func waitFor(ctx context.Context, t *testing.T, changes <-chan bus.Change[topic.PodObservation],
	want func(topic.PodObservation) bool,
) time.Time {
	t.Helper()
	var last topic.PodObservation
	for change := range changes {
		now := time.Now()
		if last = change.Value; want(last) {
			return now
		}
	}
	t.Fatalf("%v; the last observation is %+v", context.Cause(ctx), last)
	return time.Time{}
}

func sandboxConfig(t *testing.T, uid string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "cri", Uid: uid},
		Labels:       map[string]string{labels.PodUID: uid, labels.PodName: uid, labels.PodNamespace: "cri"},
		LogDirectory: t.TempDir(),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: bed.Bed.CgroupRoot},
	}
}

func startContainer(ctx context.Context, t *testing.T, client *cri.Client, box string,
	sandbox *runtimeapi.PodSandboxConfig, n int,
) string {
	t.Helper()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: uint32(n)},
		Image:    &runtimeapi.ImageSpec{Image: images.BusyboxRef, UserSpecifiedImage: images.BusyboxRef},
		Command:  []string{"sleep", "3600"},
		LogPath:  fmt.Sprintf("app%d.log", n),
		Labels:   map[string]string{labels.PodUID: sandbox.GetMetadata().GetUid(), labels.ContainerName: "app"},
	}
	id, err := client.CreateContainer(ctx, box, config, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	return id
}

func removeSandbox(t *testing.T, client *cri.Client, box string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = client.StopPodSandbox(ctx, box)
	if err := client.RemovePodSandbox(ctx, box); err != nil {
		t.Error(err)
	}
}
