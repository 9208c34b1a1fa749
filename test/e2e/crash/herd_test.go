package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// startsAtOnce is how many sandboxes and containers podsync brings up at a time.
var startsAtOnce = 2 * runtime.NumCPU()

// herdSize is how many pods start and stop at a time: several times what starts at once, so that there is something to
// meet in every stage.
const herdSize = 18

// member is a pod with an init container and volumes of three kinds. Each container writes a line into a
// directory of the node when it starts: a container that is started twice and removed once shows only there.
const member = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {herd: %[2]s}}
spec:
  terminationGracePeriodSeconds: 5
  volumes:
  - {name: starts, hostPath: {path: %[3]s}}
  - {name: settings, configMap: {name: settings}}
  - {name: scratch, emptyDir: {}}
  initContainers:
  - name: first
    image: docker.io/library/busybox:1.36
    command: [sh, -c, "echo first >> /starts/%[1]s; cp /settings/color /scratch/"]
    volumeMounts: [{name: starts, mountPath: /starts}, {name: settings, mountPath: /settings}, {name: scratch, mountPath: /scratch}]
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; echo main $(cat /scratch/color) >> /starts/%[1]s; while :; do sleep 1000 & wait; done']
    volumeMounts: [{name: starts, mountPath: /starts}, {name: scratch, mountPath: /scratch}]
`

const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: green}}`

// wantStarts is what each pod's containers write if all is well.
const wantStarts = "first\nmain green\n"

// herd is many equal pods.
type herd struct {
	t      *testing.T
	ns     *kit.Namespace
	name   string
	starts string // directory of the lines that containers write
	pods   []*corev1.Pod
	wrote  map[string]string // what containers wrote until they were Ready, by pod
	// cutStarts is how many starts may have been cut: by killing the runtime, or podsync together with the supervisor
	// that keeps its connection.
	cutStarts int
	// runtimeDied allows one container of each pod to have been started a second time: one that the runtime, which was
	// killed when it was just starting it, knows no end of.
	runtimeDied bool
}

// newHerd creates the pods and doesn't wait.
func newHerd(t *testing.T, ns *kit.Namespace, name string, size int) *herd {
	t.Helper()
	h := &herd{t: t, ns: ns, name: name, starts: t.TempDir(), wrote: map[string]string{}}
	var manifests strings.Builder
	for i := range size {
		fmt.Fprintf(&manifests, member+"---\n", fmt.Sprintf("%s-%d", name, i), name, h.starts)
	}
	ns.Apply(manifests.String())
	return h
}

// running waits until all are Ready and checks that each container was started exactly once.
func (h *herd) running(size int) {
	h.t.Helper()
	h.pods = nil
	stuck := false
	for i := range size {
		p := h.ns.Running(fmt.Sprintf("%s-%d", h.name, i))
		if h.cutStarts > 0 && leftTask(p) {
			h.cutStarts--
			stuck = true
			h.t.Logf("pod %s: its start was cut, and containerd removes the container only when it is started again", p.Name)
			continue
		}
		if h.cutStarts > 0 && h.ns.Bed().CRIO(h.t) && restarts(p) == 1 {
			h.cutStarts--
			h.t.Logf("pod %s: its start was cut, which CRI-O takes for a run that failed", p.Name)
			continue
		}
		h.pods = append(h.pods, p)
	}
	if stuck {
		h.ns.Bed().CRI.Stop()
		if err := h.ns.Bed().CRI.Launch(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, p := range h.pods {
		err := h.startedOnce(p)
		if err != nil && h.runtimeDied && diedOnce(p) {
			h.t.Logf("pod %s: a container died with the runtime and was started again", p.Name)
			continue
		}
		if err != nil {
			h.t.Errorf("pod %s: %v", p.Name, err)
		}
	}
}

// leftTask reports whether the runtime has broken off the start of the main container between making its task and
// asking for its PID. containerd 2.4 forgets such a task and refuses to remove its container ("cannot delete running
// task"), even once the task's process is killed.
func leftTask(p *corev1.Pod) bool {
	const cut = "failed to get task pid: context canceled"
	last := kit.Status(p, "main").LastTerminationState.Terminated
	return last != nil && last.Reason == "StartError" && strings.HasSuffix(last.Message, cut)
}

// diedOnce reports whether one of the pod's containers was restarted, once, and its first run didn't come to an end of
// its own that the runtime knows of.
func diedOnce(p *corev1.Pod) bool {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if last := s.LastTerminationState.Terminated; last != nil && (last.Reason == "Completed" || last.Reason == "Error") {
			return false
		}
	}
	return restarts(p) == 1
}

func restarts(p *corev1.Pod) (n int) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		n += int(s.RestartCount)
	}
	return n
}

func (h *herd) startedOnce(p *corev1.Pod) error {
	var errs []error
	for _, name := range []string{"first", "main"} {
		if status := kit.Status(p, name); status == nil || status.RestartCount != 0 {
			errs = append(errs, fmt.Errorf("status of %s: %v", name, status))
		}
		errs = append(errs, h.hasLog(p, name))
	}
	lines := h.awaitLines(p)
	judged := h.wrote[p.Name] == lines
	if h.wrote[p.Name] = lines; !judged && !h.good(lines) {
		errs = append(errs, fmt.Errorf("its containers wrote %q, want %q", lines, wantStarts))
	}
	filter := map[string]string{"io.kubernetes.pod.uid": string(p.UID)}
	answer, err := h.ns.Bed().CRI.Runtime().ListContainers(h.t.Context(),
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: filter}})
	errs = append(errs, err)
	var seen []string
	for _, c := range answer.GetContainers() {
		seen = append(seen, fmt.Sprintf("%s/%d", c.GetMetadata().GetName(), c.GetMetadata().GetAttempt()))
	}
	if slices.Sort(seen); !slices.Equal(seen, []string{"first/0", "main/0"}) {
		errs = append(errs, fmt.Errorf("containers in containerd, with attempts: %v", seen))
	}
	// What is left of a sandbox whose creation was broken off stays until the pod goes.
	sandboxes, err := h.ns.Bed().CRI.Runtime().ListPodSandbox(h.t.Context(),
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			LabelSelector: filter, State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		}})
	if n := len(sandboxes.GetItems()); err != nil || n != 1 {
		errs = append(errs, fmt.Errorf("%d ready sandboxes in containerd", n), err)
	}
	return errors.Join(errs...)
}

// hasLog is an error unless the link that log collectors follow leads to a log of the container.
func (h *herd) hasLog(p *corev1.Pod, container string) error {
	pattern := filepath.Join("/var/log/containers", fmt.Sprintf("%s_%s_%s-*.log", p.Name, p.Namespace, container))
	links, err := filepath.Glob(pattern)
	if err == nil && len(links) == 0 {
		return fmt.Errorf("%s has no link to its log (%s)", container, pattern)
	}
	for _, link := range links {
		if _, statErr := os.Stat(link); statErr != nil {
			err = errors.Join(err, fmt.Errorf("link to the log of %s: %w", container, statErr))
		}
	}
	return err
}

// awaitLines waits for the main container's line: a container runs a moment before its command does.
func (h *herd) awaitLines(p *corev1.Pod) string {
	h.t.Helper()
	var lines string
	kit.Eventually(h.t, "a line of "+p.Name+"'s main container", func() error {
		data, err := os.ReadFile(filepath.Join(h.starts, p.Name))
		if lines = string(data); err == nil && !strings.Contains(lines, "main") {
			return fmt.Errorf("it wrote %q", lines)
		}
		return err
	})
	return lines
}

// good reports whether each container has started once. If cutStarts is set, a line may be there twice: a start is
// broken off when containerd is killed or its caller hangs up, and in the last milliseconds the command may run
// already.
func (h *herd) good(lines string) bool {
	if lines == wantStarts {
		return true
	}
	list := strings.SplitAfter(lines, "\n")
	once := strings.Join(slices.Compact(list), "")
	if once != wantStarts || h.cutStarts == 0 {
		return false
	}
	h.cutStarts--
	h.t.Logf("a start was cut when its command ran already: %q", lines)
	return true
}

// delete deletes the pods and doesn't wait.
func (h *herd) delete() {
	h.t.Helper()
	err := h.ns.Bed().Client.CoreV1().Pods(h.ns.Name).DeleteCollection(h.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "herd=" + h.name})
	if err != nil {
		h.t.Fatal(err)
	}
}

// gone waits until the pods are gone and the node has nothing left of them.
func (h *herd) gone() {
	h.t.Helper()
	for _, p := range h.pods {
		h.ns.Gone(p)
	}
	kit.Eventually(h.t, "nothing left of deleted pods", func() error {
		return h.ns.Bed().Leftovers(h.t.Context(), h.pods...)
	})
	for _, p := range h.pods {
		if lines, err := os.ReadFile(filepath.Join(h.starts, p.Name)); err != nil || string(lines) != h.wrote[p.Name] {
			h.t.Errorf("pod %s: its containers wrote %q and when it was gone %q (%v)", p.Name, h.wrote[p.Name], lines, err)
		}
	}
}

// alive counts the herd's running main containers, as the runtime tells.
func (h *herd) alive() int {
	h.t.Helper()
	answer, err := h.ns.Bed().CRI.Runtime().ListContainers(h.t.Context(),
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{"io.kubernetes.pod.namespace": h.ns.Name, "io.kubernetes.container.name": "main"},
		}})
	if err != nil {
		h.t.Fatal(err)
	}
	n := 0
	for _, c := range answer.GetContainers() {
		if strings.HasPrefix(c.GetLabels()["io.kubernetes.pod.name"], h.name+"-") {
			n++
		}
	}
	return n
}

// flips records every pod of a namespace that was Ready and isn't any more though nobody deleted it.
type flips struct {
	mu    sync.Mutex
	found []string
}

// watchFlips watches until the test ends, and fails it if a pod's Ready condition turned.
func watchFlips(t *testing.T, ns *kit.Namespace) {
	f := &flips{}
	done := make(chan struct{})
	// A watch ends with the API server; what happened meanwhile shows in the time of the last turn.
	since := map[string]metav1.Time{}
	go func() {
		defer close(done)
		for t.Context().Err() == nil {
			w, err := ns.Bed().Client.CoreV1().Pods(ns.Name).Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				time.Sleep(100 * time.Millisecond) // the API server is away
				continue
			}
			for event := range w.ResultChan() {
				if p, ok := event.Object.(*corev1.Pod); ok {
					f.look(p, since)
				}
			}
		}
	}()
	t.Cleanup(func() {
		<-done
		for _, text := range f.found {
			t.Error(text)
		}
	})
}

func (f *flips) look(p *corev1.Pod, since map[string]metav1.Time) {
	if p.DeletionTimestamp != nil {
		return
	}
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		first, was := since[p.Name]
		switch {
		case c.Status == corev1.ConditionTrue && !was:
			since[p.Name] = c.LastTransitionTime
		case was && (c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Equal(&first)):
			f.mu.Lock()
			f.found = append(f.found, fmt.Sprintf("pod %s was Ready since %v and turned %s at %v: %s %s",
				p.Name, first, c.Status, c.LastTransitionTime, c.Reason, c.Message))
			f.mu.Unlock()
		}
	}
}

// atLeast and atMost are conditions on a count, for kit.Eventually.
func atLeast(count func() int, want int) func() error {
	return func() error { return compare(count(), "at least", want, func(n int) bool { return n >= want }) }
}

func atMost(count func() int, want int) func() error {
	return func() error { return compare(count(), "at most", want, func(n int) bool { return n <= want }) }
}

func compare(n int, relation string, want int, ok func(int) bool) error {
	if ok(n) {
		return nil
	}
	return fmt.Errorf("%d run, wanted %s %d", n, relation, want)
}
