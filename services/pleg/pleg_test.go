package pleg

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
)

func TestEventsArePublishedAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		before := b.sandbox("old")
		b.container("old", before, "app")
		b.run()
		b.wantState("old", topic.ContainerRunning)
		b.after(2 * time.Second) // the relists of the opening are over
		lists := b.fake.Calls("ListPodSandbox")
		box := b.sandbox("u")
		id := b.container("u", box, "app")
		b.settle()
		b.wantState("u", topic.ContainerRunning)
		b.fake.Exit(id, 3, "")
		b.settle()
		b.wantState("u", topic.ContainerExited)
		if code := b.pod("u").Containers[0].ExitCode; code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
		if n := b.fake.Calls("ListPodSandbox") - lists; n > 5 {
			t.Errorf("%d readings for five events", n)
		}
		b.must(b.client.StopPodSandbox(b.t.Context(), box))
		b.settle()
		if seen := b.pod("u"); seen.Sandboxes[0].Ready {
			t.Error("the stopped sandbox is ready on the bus")
		}
		b.must(b.client.RemovePodSandbox(b.t.Context(), box))
		b.after(100 * time.Millisecond)
		if seen := b.pod("u"); seen != nil {
			t.Errorf("the removed pod is still on the bus: %+v", seen)
		}
		b.wantState("old", topic.ContainerRunning)
	})
}

func TestIdleIsQuiet(t *testing.T) {
	inBubble(t, func(b *bed) {
		for _, uid := range []string{"a", "b", "c"} {
			b.container(uid, b.sandbox(uid), "app")
		}
		b.run()
		b.after(10 * time.Second)
		lists, statuses := b.fake.Calls("ListContainers"), b.fake.Calls("ContainerStatus")
		stored := b.bus.Stored()
		b.after(5 * time.Minute)
		if n := b.fake.Calls("ListContainers") - lists; n != 5 {
			t.Errorf("%d relists in five minutes, want 5", n)
		}
		if n := b.fake.Calls("ContainerStatus") - statuses; n != 0 {
			t.Errorf("%d inspections of containers that didn't change", n)
		}
		if n := b.bus.Stored() - stored; n != 0 {
			t.Errorf("%d messages although nothing changed", n)
		}
	})
}

func TestWithoutEventsTheRelistFindsEverything(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.run()
		b.after(5 * time.Second)
		if b.node().EventStream {
			t.Error("there is an event stream")
		}
		stored := b.bus.Stored()
		b.after(time.Minute)
		if n := b.bus.Stored() - stored; n != 0 {
			t.Errorf("%d messages although nothing changed", n)
		}
		box := b.sandbox("u")
		id := b.container("u", box, "app")
		b.after(1100 * time.Millisecond)
		b.wantState("u", topic.ContainerRunning)
		b.fake.Exit(id, 0, "")
		b.after(1100 * time.Millisecond)
		b.wantState("u", topic.ContainerExited)
		b.must(b.client.RemovePodSandbox(b.t.Context(), box))
		b.after(1100 * time.Millisecond)
		if b.pod("u") != nil {
			t.Error("the removed pod is still on the bus")
		}
	}, critest.WithoutEvents())
}

// TestEventsThatAreOff has the runtime end each stream at once: it isn't asked for another again and again.
func TestEventsThatAreOff(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.run()
		b.after(5 * time.Minute)
		if n := b.fake.Calls("GetContainerEvents"); n > 6 {
			t.Errorf("the event stream was asked for %d times in five minutes, want 6 at most", n)
		}
		box := b.sandbox("u")
		b.container("u", box, "app")
		b.after(1100 * time.Millisecond)
		b.wantState("u", topic.ContainerRunning)
	}, critest.WithEventsOff())
}

func TestPodsThatEndedWhileNoPLEGRanAreRemoved(t *testing.T) {
	inBubble(t, func(b *bed) {
		box := b.sandbox("gone")
		b.sandbox("stays")
		stop := b.run()
		if b.pod("gone") == nil {
			t.Fatal("the pod isn't on the bus")
		}
		stop()
		b.must(b.client.RemovePodSandbox(b.t.Context(), box))
		b.run()
		b.after(time.Second)
		if b.pod("gone") != nil || b.pod("stays") == nil {
			t.Errorf("after the restart: gone %+v, stays %+v", b.pod("gone"), b.pod("stays"))
		}
	})
}

func TestBrokenStreamLosesNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		box := b.sandbox("u")
		id := b.container("u", box, "app")
		b.run()
		b.after(2 * time.Second)
		if !b.node().EventStream {
			t.Fatal("the stream isn't open")
		}
		b.fake.BreakStreams()
		b.fake.Exit(id, 1, "") // nobody listens
		b.settle()
		b.wantState("u", topic.ContainerExited) // the relist that follows a broken stream
		b.after(3 * time.Second)
		if !b.node().EventStream {
			t.Error("the stream didn't come back")
		}
	})
}

// sharing is containerd 1.7, which gives each event to one of its streams: the first goes to an earlier pleg's.
type sharing struct{ *cri.Client }

func (sharing) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "1.7.24~ds1"}, nil
}

func (r sharing) GetContainerEvents(ctx context.Context, handle func(*runtimeapi.ContainerEventResponse)) error {
	taken := false
	return r.Client.GetContainerEvents(ctx, func(e *runtimeapi.ContainerEventResponse) {
		if taken {
			handle(e)
		}
		taken = true
	})
}

func TestAnEventThatAnotherStreamTakes(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.wrap = func(c *cri.Client) Runtime { return sharing{c} }
		id := b.container("u", b.sandbox("u"), "app")
		b.run()
		b.after(10 * time.Second)
		if !b.node().EventStream {
			t.Fatal("the stream isn't open")
		}
		b.fake.Exit(id, 1, "")
		b.after(1100 * time.Millisecond)
		b.wantState("u", topic.ContainerExited)
	})
}

func TestRuntimeAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		box := b.sandbox("u")
		id := b.container("u", box, "app")
		b.run()
		b.after(2 * time.Second)
		if state, text := b.health.get(); state != topic.Healthy {
			t.Fatalf("health %s: %s", state, text)
		}
		b.fake.Down()
		b.after(3 * time.Second)
		if node := b.node(); node.Reachable || !strings.Contains(node.Message, "can't be reached") ||
			node.Name != "containerd" {
			t.Errorf("node.runtime of a runtime that is away: %+v", node)
		}
		if state, text := b.health.get(); state != topic.Unhealthy || text == "" {
			t.Errorf("health %s: %s", state, text)
		}
		b.wantState("u", topic.ContainerRunning) // an absent runtime has no empty pods
		b.fake.Exit(id, 1, "")
		b.fake.Up(b.t)
		b.after(1500 * time.Millisecond)
		b.wantState("u", topic.ContainerExited)
		b.after(2 * time.Second)
		if node := b.node(); !node.Reachable || !node.EventStream {
			t.Errorf("node.runtime of a runtime that is back: %+v", node)
		}
		if state, text := b.health.get(); state != topic.Healthy {
			t.Errorf("health %s: %s", state, text)
		}
	})
}

func TestHangingRuntimeIsFoundOut(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sandbox("u")
		b.run()
		b.after(2 * time.Second)
		for _, call := range []string{"Status", "ListPodSandbox", "ListContainers", "Version"} {
			b.fake.On(call, critest.Hang)
		}
		b.after(statusEvery + nodeTimeout + time.Second)
		if node := b.node(); node.Reachable || !strings.Contains(node.Message, "Status") {
			t.Errorf("node.runtime of a runtime that hangs: %+v", node)
		}
		if b.pod("u") == nil {
			t.Error("a runtime that hangs made the pod disappear")
		}
	})
}

func TestStuckContainerHoldsUpNobodyElse(t *testing.T) {
	inBubble(t, func(b *bed) {
		var stuck []string
		for i := range 2 * parallel {
			uid := "stuck" + string(rune('a'+i))
			stuck = append(stuck, b.container(uid, b.sandbox(uid), "app"))
		}
		hang := true
		var mu sync.Mutex
		b.fake.On("ContainerStatus", func(ctx context.Context, req any) error {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range stuck {
				if hang && req.(*runtimeapi.ContainerStatusRequest).GetContainerId() == id {
					mu.Unlock()
					defer mu.Lock()
					return critest.Hang(ctx, req)
				}
			}
			return nil
		})
		b.run()
		b.container("good", b.sandbox("good"), "app")
		b.after(2 * time.Second)
		b.wantState("good", topic.ContainerRunning)
		b.after(25 * time.Second)
		seen := b.pod("stucka")
		if seen == nil || len(seen.Errors) != 1 || seen.Containers[0].State != topic.ContainerRunning {
			t.Fatalf("the stuck pod is on the bus as %+v", seen)
		}
		if state, text := b.health.get(); state != topic.Degraded || !strings.Contains(text, "16 pods") {
			t.Errorf("health %s: %s", state, text)
		}
		mu.Lock()
		hang = false
		mu.Unlock()
		b.after(time.Minute)
		if seen := b.pod("stucka"); len(seen.Errors) != 0 || seen.Containers[0].StartedAt.IsZero() {
			t.Errorf("the pod that is well again is on the bus as %+v", seen)
		}
	})
}

func TestBusThatComesLaterGetsEverything(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.bus.Disconnect()
		b.sandbox("u")
		b.run()
		b.after(5 * time.Second)
		if b.pod("u") != nil {
			t.Fatal("the bus isn't away")
		}
		b.bus.Reconnect()
		b.after(time.Second)
		if b.pod("u") == nil || !b.node().Reachable {
			t.Error("the bus that came back knows nothing")
		}
	})
}

func TestNodeRuntime(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.fake.AddImage("registry.k8s.io/big:1", 9<<20)
		b.fake.AddImage("registry.k8s.io/small:1", 1)
		b.fake.SetCondition(&runtimeapi.RuntimeCondition{
			Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady",
			Message: "no CNI",
		})
		b.run()
		b.after(2 * time.Second)
		node := b.node()
		if node.Name != "containerd" || node.Version == "" || node.APIVersion != "v1" || !node.Reachable ||
			!node.RuntimeReady.Status ||
			node.CgroupDriver != "cgroupfs" || node.FirstRelist.IsZero() || len(node.Handlers) != 2 ||
			!*node.Features.SupplementalGroupsPolicy {
			t.Errorf("node.runtime %+v", node)
		}
		if node.NetworkReady != (topic.RuntimeCondition{Reason: "NetworkPluginNotReady", Message: "no CNI"}) {
			t.Errorf("network condition %+v", node.NetworkReady)
		}
		if len(node.Images) != 2 || node.Images[0].Names[1] != "registry.k8s.io/big:1" || node.Images[1].Names[1] != image {
			t.Errorf("images %+v, want the two largest, largest first", node.Images)
		}
		b.fake.SetCondition(&runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true})
		b.after(statusEvery)
		if !b.node().NetworkReady.Status {
			t.Error("a change of a condition isn't published within 5 s")
		}
	})
}

func TestMetrics(t *testing.T) {
	inBubble(t, func(b *bed) {
		box := b.sandbox("u")
		b.fake.Exit(b.container("u", box, "init"), 0, "")
		app := b.container("u", box, "app")
		b.run()
		b.after(2 * time.Second)
		b.counts(1, 1, 1)
		for _, name := range []string{
			"kubelet_pleg_relist_duration_seconds", "kubelet_pleg_relist_interval_seconds", "kubelet_pleg_last_seen_seconds",
			"kubelet_pleg_pod_relist_duration_seconds", "kubelet_evented_pleg_connection_latency_seconds",
			"kubelet_evented_pleg_connection_success_count", "kubelet_evented_pleg_connection_error_count",
		} {
			if n, err := testutil.GatherAndCount(b.registry, name); err != nil || n != 1 {
				t.Errorf("metric %s: %d, %v", name, n, err)
			}
		}

		b.fake.Exit(app, 1, "")
		b.after(2 * time.Second)
		b.counts(0, 2, 1)
		b.must(b.client.StopPodSandbox(b.t.Context(), box))
		b.after(2 * time.Second)
		b.counts(0, 2, 0)
		b.must(b.client.RemovePodSandbox(b.t.Context(), box))
		b.after(2 * time.Second)
		b.counts(0, 0, 0)
	})
}

// counts fails the test unless the metrics have so many containers and pods.
func (b *bed) counts(running, exited, pods int) {
	b.t.Helper()
	err := testutil.GatherAndCompare(b.registry, strings.NewReader(fmt.Sprintf(`
# HELP kubelet_running_containers Containers by their state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} %d
kubelet_running_containers{container_state="running"} %d
kubelet_running_containers{container_state="unknown"} 0
# HELP kubelet_running_pods Pods with a sandbox that is ready.
# TYPE kubelet_running_pods gauge
kubelet_running_pods %d
`, exited, running, pods)), "kubelet_running_containers", "kubelet_running_pods")
	if err != nil {
		b.t.Error(err)
	}
}
