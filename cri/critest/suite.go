package critest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/labels"
	"kubelot.dev/cri/observe"
)

// Target is the runtime that Suite tests.
type Target struct {
	Client *cri.Client
	// Image is present in the runtime and has sh, sleep and echo.
	Image string
	// LogDir is where container logs may go.
	LogDir string
	// CgroupParent and Host adapt the sandboxes to a machine; Host puts them on the host's network.
	CgroupParent string
	Host         bool
	// NoSandboxEvents is for CRI-O, whose events are those of containers only.
	NoSandboxEvents bool
}

// patience bounds each test of a real runtime, on a machine that does other things too.
const patience = 5 * time.Minute

// Suite is what kubelot relies on in a container runtime. It passes against the fake, containerd 2 and CRI-O.
func Suite(t *testing.T, target Target) {
	t.Run("node", func(t *testing.T) { testNode(t, target) })
	t.Run("sandbox", func(t *testing.T) { testSandbox(t, target) })
	t.Run("container", func(t *testing.T) { testContainer(t, target) })
	t.Run("exit", func(t *testing.T) { testExit(t, target) })
	t.Run("remove while running", func(t *testing.T) { testRemoveRunning(t, target) })
	t.Run("events", func(t *testing.T) { testEvents(t, target) })
	t.Run("observe", func(t *testing.T) { testObserve(t, target) })
	t.Run("stats", func(t *testing.T) { testStats(t, target) })
	t.Run("not found", func(t *testing.T) { testNotFound(t, target) })
}

func testNode(t *testing.T, target Target) {
	ctx := deadline(t)
	version, err := target.Client.Version(ctx)
	must(t, err)
	if version.GetRuntimeName() == "" || version.GetRuntimeVersion() == "" {
		t.Errorf("version is incomplete: %v", version)
	}
	status, err := target.Client.Status(ctx, false)
	must(t, err)
	for _, kind := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		if !slices.ContainsFunc(status.GetStatus().GetConditions(), func(c *runtimeapi.RuntimeCondition) bool {
			return c.GetType() == kind
		}) {
			t.Errorf("no condition %s in %v", kind, status.GetStatus())
		}
	}
	images, err := target.Client.ListImages(ctx, nil)
	must(t, err)
	if len(images) == 0 {
		t.Error("no images listed")
	}
	image, err := target.Client.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: target.Image})
	must(t, err)
	if image.GetId() == "" {
		t.Errorf("image %s has no ID", target.Image)
	}
	image, err = target.Client.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: "docker.io/library/none-such:1"})
	must(t, err)
	if image != nil {
		t.Errorf("an image that isn't there has the status %v", image)
	}
	info, err := target.Client.ImageFsInfo(ctx)
	must(t, err)
	if len(info.GetImageFilesystems()) == 0 {
		t.Error("no image filesystem")
	}
}

func testSandbox(t *testing.T, target Target) {
	ctx, pod := deadline(t), newPod(t, target, "sandbox")
	id := pod.run(ctx, t)
	status, err := target.Client.PodSandboxStatus(ctx, id)
	must(t, err)
	if status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || labels.Pod(status.GetLabels()) != pod.ref() {
		t.Errorf("status of a new sandbox: %v", status)
	}
	if !target.Host && status.GetNetwork().GetIp() == "" {
		t.Error("a sandbox on the pod network has no address")
	}
	same, err := target.Client.RunPodSandbox(ctx, pod.config, "")
	noSecond(t, "sandbox", id, same, err)
	must(t, target.Client.StopPodSandbox(ctx, id))
	must(t, target.Client.StopPodSandbox(ctx, id))
	listed, err := target.Client.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels.Selector(pod.uid)})
	must(t, err)
	if len(listed) != 1 || listed[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("a stopped sandbox is listed as %v", listed)
	}
	must(t, target.Client.RemovePodSandbox(ctx, id))
	must(t, target.Client.RemovePodSandbox(ctx, id))
	if _, err := target.Client.PodSandboxStatus(ctx, id); !cri.IsNotFound(err) {
		t.Errorf("status of a removed sandbox: %v, want not found", err)
	}
	if again := pod.run(ctx, t); again == id {
		t.Error("an ID was given twice")
	}
}

// noSecond checks what became of the creation of a second object of the same name and attempt: it is refused in favour
// of the first (containerd), or yields that one (CRI-O).
func noSecond(t *testing.T, what, first, second string, err error) {
	t.Helper()
	if holder, reserved := nameHolder(err); second != first && (!reserved || holder != first) {
		t.Errorf("second %s of the same name and attempt: %q, holder %q, reserved %t, error %v; want holder %s", what,
			second, holder, reserved, err, first)
	}
}

func testContainer(t *testing.T, target Target) {
	ctx, pod := deadline(t), newPod(t, target, "container")
	box := pod.run(ctx, t)
	config := pod.container("app", "sleep", "3600")
	id, err := target.Client.CreateContainer(ctx, box, config, pod.config)
	must(t, err)
	wantState(ctx, t, target, id, runtimeapi.ContainerState_CONTAINER_CREATED)
	same, err := target.Client.CreateContainer(ctx, box, config, pod.config)
	noSecond(t, "container", id, same, err)
	must(t, target.Client.StartContainer(ctx, id))
	status := wantState(ctx, t, target, id, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if status.GetStartedAt() < status.GetCreatedAt() || status.GetImageRef() == "" {
		t.Errorf("status of a running container: %v", status)
	}
	if err := target.Client.StartContainer(ctx, id); err == nil {
		t.Error("a running container could be started")
	}
	result, err := target.Client.ExecSync(ctx, id, []string{"echo", "hello"}, time.Minute)
	must(t, err)
	if string(result.GetStdout()) != "hello\n" || result.GetExitCode() != 0 {
		t.Errorf("echo hello gave %v", result)
	}
	result, err = target.Client.ExecSync(ctx, id, []string{"sh", "-c", "exit 7"}, time.Minute)
	must(t, err)
	if result.GetExitCode() != 7 {
		t.Errorf("exit 7 gave %v", result)
	}
	must(t, target.Client.StopContainer(ctx, id, time.Second))
	must(t, target.Client.StopContainer(ctx, id, time.Second))
	status = wantState(ctx, t, target, id, runtimeapi.ContainerState_CONTAINER_EXITED)
	if code := status.GetExitCode(); (code != killed && code != terminated) ||
		status.GetFinishedAt() < status.GetStartedAt() {
		t.Errorf("status of a stopped container: %v", status)
	}
	must(t, target.Client.RemoveContainer(ctx, id))
	must(t, target.Client.RemoveContainer(ctx, id))
	if _, err := target.Client.ContainerStatus(ctx, id); !cri.IsNotFound(err) {
		t.Errorf("status of a removed container: %v, want not found", err)
	}
}

func testExit(t *testing.T, target Target) {
	ctx, pod := deadline(t), newPod(t, target, "exit")
	box := pod.run(ctx, t)
	for code, reason := range map[int32]string{0: "Completed", 3: "Error"} {
		id := pod.start(ctx, t, box, pod.container(fmt.Sprintf("app%d", code), "sh", "-c", fmt.Sprintf("exit %d", code)))
		status := wantState(ctx, t, target, id, runtimeapi.ContainerState_CONTAINER_EXITED)
		if status.GetExitCode() != code || status.GetReason() != reason || status.GetFinishedAt() == 0 {
			t.Errorf("after exit %d: %v, want reason %s", code, status, reason)
		}
	}
}

func testRemoveRunning(t *testing.T, target Target) {
	ctx, pod := deadline(t), newPod(t, target, "remove")
	box := pod.run(ctx, t)
	id := pod.start(ctx, t, box, pod.container("app", "sleep", "3600"))
	must(t, target.Client.StopPodSandbox(ctx, box))
	status := wantState(ctx, t, target, id, runtimeapi.ContainerState_CONTAINER_EXITED)
	if status.GetExitCode() != killed {
		t.Errorf("a container in a stopped sandbox exited with %d, want %d", status.GetExitCode(), killed)
	}
	must(t, target.Client.RemovePodSandbox(ctx, box))
	if _, err := target.Client.ContainerStatus(ctx, id); !cri.IsNotFound(err) {
		t.Errorf("container of a removed sandbox: %v, want not found", err)
	}
}

func testEvents(t *testing.T, target Target) {
	ctx, pod := deadline(t), newPod(t, target, "events")
	streamCtx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	seen := map[string][]runtimeapi.ContainerEventType{}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := target.Client.GetContainerEvents(streamCtx, func(event *runtimeapi.ContainerEventResponse) {
			mu.Lock()
			defer mu.Unlock()
			seen[event.GetContainerId()] = append(seen[event.GetContainerId()], event.GetContainerEventType())
		})
		if streamCtx.Err() == nil {
			t.Errorf("the event stream broke: %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()
	// A stream doesn't tell when it begins, so other events are made until one is seen.
	marker := newPod(t, target, "marker")
	eventually(ctx, t, func() error {
		box := marker.run(ctx, t)
		marker.start(ctx, t, box, marker.container("app", "echo"))
		must(t, target.Client.RemovePodSandbox(ctx, box))
		mu.Lock()
		defer mu.Unlock()
		if len(seen) == 0 {
			return errors.New("the event stream has delivered nothing")
		}
		return nil
	})
	box := pod.run(ctx, t)
	id := pod.start(ctx, t, box, pod.container("app", "sleep", "3600"))
	must(t, target.Client.StopContainer(ctx, id, 0))
	must(t, target.Client.RemoveContainer(ctx, id))
	must(t, target.Client.StopPodSandbox(ctx, box))
	must(t, target.Client.RemovePodSandbox(ctx, box))
	want := []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	objects := []string{id}
	if !target.NoSandboxEvents {
		objects = append(objects, box)
	}
	for _, object := range objects {
		eventually(ctx, t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(seen[object], want) {
				return fmt.Errorf("events of %s are %v, want %v", object, seen[object], want)
			}
			return nil
		})
	}
}

func testObserve(t *testing.T, target Target) {
	ctx, pod := deadline(t), newPod(t, target, "observe")
	box := pod.run(ctx, t)
	first := pod.start(ctx, t, box, pod.container("init", "sh", "-c", "exit 0"))
	wantState(ctx, t, target, first, runtimeapi.ContainerState_CONTAINER_EXITED)
	second := pod.start(ctx, t, box, pod.container("app", "sleep", "3600"))
	seen, err := observe.Pod(ctx, target.Client, pod.uid)
	must(t, err)
	if seen.Ref != pod.ref() || len(seen.Errors) > 0 || len(seen.Sandboxes) != 1 || len(seen.Containers) != 2 {
		t.Fatalf("observed %+v", seen)
	}
	if !seen.Sandboxes[0].Ready || seen.Sandboxes[0].HostNetwork != target.Host {
		t.Errorf("sandbox observed as %+v", seen.Sandboxes[0])
	}
	wantObserved(t, target, seen.Containers, first, second)
}

// wantObserved checks the containers that testObserve made.
func wantObserved(t *testing.T, target Target, containers []topic.Container, first, second string) {
	t.Helper()
	app, init := containers[0], containers[1]
	if app.ID != second || app.State != topic.ContainerRunning || app.Name != "app" || app.StartedAt.IsZero() ||
		app.LogPath == "" {
		t.Errorf("newest container observed as %+v", app)
	}
	if init.ID != first || init.State != topic.ContainerExited || init.FinishedAt.IsZero() || init.Reason != "Completed" {
		t.Errorf("older container observed as %+v", init)
	}
	if want := labels.ContainerHash(&corev1.Container{Name: "app", Image: target.Image}); app.Hash != want ||
		app.RestartCount != 4 {
		t.Errorf("hash %q, restart count %d; want %q and 4", app.Hash, app.RestartCount, want)
	}
}

func testNotFound(t *testing.T, target Target) {
	ctx := deadline(t)
	if err := target.Client.StartContainer(ctx, "none"); !cri.IsNotFound(err) {
		t.Errorf("start of an unknown container: %v, want not found", err)
	}
	must(t, target.Client.StopPodSandbox(ctx, "none"))
	must(t, target.Client.RemovePodSandbox(ctx, "none"))
	must(t, target.Client.RemoveContainer(ctx, "none"))
	seen, err := observe.Pod(ctx, target.Client, "no-such-uid")
	must(t, err)
	if len(seen.Sandboxes)+len(seen.Containers) != 0 {
		t.Errorf("an unknown pod was observed as %+v", seen)
	}
}
