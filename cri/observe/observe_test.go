package observe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
	"kubelot.dev/cri/labels"
	"kubelot.dev/cri/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const image = "docker.io/library/busybox:1.36"

// bed is a fake runtime with one pod, "web" of UID u1.
type bed struct {
	t      *testing.T
	fake   *critest.Runtime
	client *cri.Client
	config *runtimeapi.PodSandboxConfig
	box    string
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, fake: critest.Start(t)}
	b.client = b.fake.Client(t, 0)
	b.fake.AddImage(image, 1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"}}
	b.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1"},
		Labels:   labels.Sandbox(pod),
		Annotations: map[string]string{
			"a": "b", corev1.LastAppliedConfigAnnotation: `{"spec":{"containers":[{"env":[{"value":"secret"}]}]}}`,
		},
		LogDirectory: "/var/log/pods/shop_web_u1",
	}
	var err error
	if b.box, err = b.client.RunPodSandbox(t.Context(), b.config, "runc"); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) create(name string, mutate ...func(*runtimeapi.ContainerConfig)) string {
	b.t.Helper()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image},
		Labels: map[string]string{
			labels.PodUID: "u1", labels.PodName: "web", labels.PodNamespace: "shop",
			labels.ContainerName: name,
		},
		LogPath: name + "/0.log",
	}
	for _, m := range mutate {
		m(config)
	}
	id, err := b.client.CreateContainer(b.t.Context(), b.box, config, b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.client.StartContainer(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *bed) observe(earlier *topic.PodObservation) topic.PodObservation {
	b.t.Helper()
	seen, err := observe.PodSince(b.t.Context(), b.client, "u1", earlier)
	if err != nil {
		b.t.Fatal(err)
	}
	return seen
}

func TestPodTellsEverything(t *testing.T) {
	b := newBed(t)
	id := b.create("app", func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{
			labels.Hash: "00ab", labels.RestartCount: "3", labels.TerminationMessagePath: "/dev/termination-log",
			labels.TerminationMessagePolicy: "File", labels.Ports: "not json",
		}
		c.Mounts = []*runtimeapi.Mount{
			{ContainerPath: "/etc/hosts", HostPath: "/h"}, {ContainerPath: "/dev/termination-log", HostPath: "/host/tl"},
		}
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			CpuShares: 102, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20,
		}}
	})
	before := time.Now()
	seen := b.observe(nil)
	if seen.At.Before(before) || seen.Ref != (topic.Ref{Namespace: "shop", Name: "web", UID: "u1"}) ||
		len(seen.Errors) > 0 {
		t.Errorf("observation %+v", seen)
	}
	if len(seen.Sandboxes) != 1 || len(seen.Containers) != 1 {
		t.Fatalf("observation %+v", seen)
	}
	box := seen.Sandboxes[0]
	if box.ID != b.box || !box.Ready || len(box.IPs) != 1 || box.RuntimeHandler != "runc" {
		t.Errorf("sandbox %+v", box)
	}
	if strings.Contains(fmt.Sprint(box), "secret") {
		t.Error("the pod's annotations, with kubectl's copy of the manifest, are on the bus once more")
	}
	c := seen.Containers[0]
	if c.ID != id || c.State != topic.ContainerRunning || c.Hash != "ab" || c.RestartCount != 3 ||
		c.StopSignal != "SIGTERM" ||
		c.TerminationMessageFile != "/host/tl" || c.LogPath != "/var/log/pods/shop_web_u1/app/0.log" || c.ImageRef == "" {
		t.Errorf("container %+v", c)
	}
	if cpu, limit := c.Resources.Requests.Cpu(), c.Resources.Limits; cpu.MilliValue() != 100 ||
		limit.Cpu().MilliValue() != 500 || limit.Memory().Value() != 64<<20 {
		t.Errorf("resources %+v", c.Resources)
	}
}

func TestNewestFirst(t *testing.T) {
	b := newBed(t)
	var want []string
	for i := range 12 {
		want = append(want, b.create(fmt.Sprintf("c%d", i)))
	}
	slices.Reverse(want)
	var got []string
	for _, c := range b.observe(nil).Containers {
		got = append(got, c.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// A clock that was set back makes the later run look older; to take the earlier one for the newest would start it yet
// again.
func TestTheNewestIsTheLastAttempt(t *testing.T) {
	b := newBed(t)
	attempt := func(n uint32) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = n }
	}
	second := b.create("app", attempt(2))
	b.create("app", attempt(1))
	var boxes []string
	for _, n := range []uint32{2, 1} {
		b.config.Metadata.Attempt = n
		box, err := b.client.RunPodSandbox(t.Context(), b.config, "runc")
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, box)
	}
	if seen := b.observe(nil); seen.Containers[0].ID != second || seen.Sandboxes[0].ID != boxes[0] {
		t.Errorf("the newest are %+v and %+v, want those of the last attempt", seen.Containers[0], seen.Sandboxes[0])
	}
}

func TestStuckContainerSpoilsNothingElse(t *testing.T) {
	b := newBed(t)
	stuck, good := b.create("stuck"), b.create("good")
	earlier := b.observe(nil)
	b.fake.On("ContainerStatus", func(_ context.Context, req any) error {
		if req.(*runtimeapi.ContainerStatusRequest).GetContainerId() == stuck {
			return status.Error(codes.DeadlineExceeded, "shim doesn't answer")
		}
		return nil
	})
	seen := b.observe(nil)
	if len(seen.Errors) != 1 || !strings.Contains(seen.Errors[0], "container stuck ("+stuck+")") ||
		len(seen.Containers) != 2 {
		t.Fatalf("observation %+v", seen)
	}
	if c := find(t, seen, good); c.StartedAt.IsZero() {
		t.Errorf("the good container is %+v", c)
	}
	if c := find(t, seen, stuck); c.State != topic.ContainerRunning || c.Name != "stuck" || !c.StartedAt.IsZero() {
		t.Errorf("the stuck container is %+v", c)
	}
	if c := find(t, b.observe(&earlier), stuck); c.StartedAt.IsZero() {
		t.Error("what was known of the stuck container got lost")
	}
	b.fake.Exit(stuck, 9, "")
	exited := b.observe(&earlier)
	if c := find(t, exited, stuck); c.State != topic.ContainerExited || c.ExitCode != 137 ||
		c.Reason != "ContainerStatusUnknown" || len(exited.Errors) != 1 {
		t.Errorf("an exit that can't be read is %+v, errors %v; want it ended for a reason that isn't known", c,
			exited.Errors)
	}
	b.fake.On("ContainerStatus", nil)
	if c := find(t, b.observe(&exited), stuck); c.ExitCode != 9 {
		t.Errorf("the container is %+v, want it read once that is possible", c)
	}
}

// Nothing depends on the details of what is damaged and has had its day.
func TestWhatIsOverNeedNotBeRead(t *testing.T) {
	b := newBed(t)
	attempt := func(n uint32) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = n }
	}
	old := b.create("app", attempt(0))
	b.fake.Exit(old, 0, "")
	last := b.create("app", attempt(1))
	b.config.Metadata.Attempt = 1
	box, err := b.client.RunPodSandbox(t.Context(), b.config, "runc")
	if err == nil {
		err = b.client.StopPodSandbox(t.Context(), box)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.fake.On("PodSandboxStatus", func(_ context.Context, req any) error {
		if req.(*runtimeapi.PodSandboxStatusRequest).GetPodSandboxId() == box {
			return status.Error(codes.Internal, "its metadata is damaged")
		}
		return nil
	})
	b.fake.On("ContainerStatus", func(_ context.Context, req any) error {
		if req.(*runtimeapi.ContainerStatusRequest).GetContainerId() == old {
			return status.Error(codes.Internal, "its metadata is damaged")
		}
		return nil
	})
	seen := b.observe(nil)
	if len(seen.Errors) != 0 || len(seen.Sandboxes) != 2 || seen.Sandboxes[0].ID != box || seen.Sandboxes[0].Ready {
		t.Errorf("errors %v, sandboxes %+v; want both sandboxes and no error", seen.Errors, seen.Sandboxes)
	}
	if c := find(t, seen, old); c.State != topic.ContainerExited || seen.Containers[0].ID != last {
		t.Errorf("containers %+v, want the old one ended", seen.Containers)
	}
}

func TestExitedContainersAreReadOnce(t *testing.T) {
	b := newBed(t)
	id := b.create("init")
	b.fake.Exit(id, 0, "")
	b.create("app")
	earlier := b.observe(nil)
	before := b.fake.Calls("ContainerStatus")
	again := b.observe(&earlier)
	if calls := b.fake.Calls("ContainerStatus") - before; calls != 1 {
		t.Errorf("%d containers inspected, want the running one only", calls)
	}
	if find(t, again, id) != find(t, earlier, id) {
		t.Error("the exited container changed")
	}
}

func TestVanishedContainersAreNoError(t *testing.T) {
	b := newBed(t)
	b.create("app")
	gone := func(context.Context, any) error { return status.Error(codes.NotFound, "gone") }
	b.fake.On("ContainerStatus", gone)
	b.fake.On("PodSandboxStatus", gone)
	if seen := b.observe(nil); len(seen.Errors)+len(seen.Containers)+len(seen.Sandboxes) != 0 {
		t.Errorf("observation %+v", seen)
	}
}

func TestListFails(t *testing.T) {
	b := newBed(t)
	b.fake.On("ListContainers", func(context.Context, any) error { return errors.New("no") })
	if _, err := observe.Pod(t.Context(), b.client, "u1"); err == nil ||
		!strings.Contains(err.Error(), "observe pod u1: CRI ListContainers") {
		t.Errorf("Pod = %v", err)
	}
	if _, err := observe.All(t.Context(), b.client); err == nil {
		t.Error("All has no error")
	}
}

func TestAllFindsPodsWithoutLabels(t *testing.T) {
	b := newBed(t)
	b.create("app")
	other := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{
		Name:      "crictl",
		Namespace: "x", Uid: "u0",
	}}
	box, err := b.client.RunPodSandbox(t.Context(), other, "")
	if err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
		Image:    &runtimeapi.ImageSpec{Image: image},
	}
	if _, err := b.client.CreateContainer(t.Context(), box, config, other); err != nil {
		t.Fatal(err)
	}
	all, err := observe.All(t.Context(), b.client)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].UID != "u0" || all[0].Name != "crictl" || len(all[0].Containers) != 1 ||
		all[1].UID != "u1" {
		t.Errorf("observed %+v", all)
	}
}

func TestAgrees(t *testing.T) {
	b := newBed(t)
	first := b.create("app")
	seen := b.observe(nil)
	agrees := func() bool {
		listed, err := observe.List(t.Context(), b.client)
		if err != nil || len(listed) != 1 {
			t.Fatalf("List = %v, %v", listed, err)
		}
		return listed[0].Agrees(seen)
	}
	if !agrees() {
		t.Error("the lists don't agree though nothing happened")
	}
	for _, change := range []struct {
		name string
		make func()
	}{
		{"an exit", func() { b.fake.Exit(first, 0, "") }},
		{"a removal", func() { _ = b.client.RemoveContainer(t.Context(), first) }},
		{"a new container", func() { b.create("other") }},
		{"the sandbox's end", func() { b.fake.KillSandbox(b.box) }},
	} {
		seen = b.observe(nil)
		change.make()
		if agrees() {
			t.Errorf("after %s the lists still agree with the old observation", change.name)
		}
	}
}

func find(t *testing.T, seen topic.PodObservation, id string) topic.Container {
	t.Helper()
	for _, c := range seen.Containers {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("container %s is not in %+v", id, seen)
	return topic.Container{}
}
