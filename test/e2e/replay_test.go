package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// recordingsVariable is the environment variable that names a directory in which the recordings of these tests are
// kept. docs/replay.md says what for.
const recordingsVariable = "KUBELOT_RECORDINGS"

// recorder is a kubelot tap --record that runs.
type recorder struct {
	path   string
	cancel context.CancelFunc
	ended  chan error
	out    bytes.Buffer
	// stood is the longest time, in nanoseconds, for which the machine stood still meanwhile.
	stood atomic.Int64
}

// mostStood is for how long the machine may stand still until a difference says nothing: the check allows for messages
// that are late by a second or some (docs/replay.md), and not for a daemon that stands still between two of them.
const mostStood = time.Second

// record records what is said of the namespace's pods.
func record(t *testing.T, ns *kit.Namespace, name string) *recorder {
	t.Helper()
	dir := os.Getenv(recordingsVariable)
	if dir == "" {
		dir = t.TempDir()
	}
	r := &recorder{path: filepath.Join(dir, name+".jsonl"), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r.cancel = cancel
	cmd := exec.CommandContext(ctx, bed.Program("kubelot"), "tap", "--run-dir="+bed.Bed.Path("run"),
		"--namespace="+ns.Name, "--since=1m", "--record="+r.path) // the bus has what is said before tap listens
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- cmd.Wait() }()
	go r.watch(ctx)
	r.has(t, `"health.podsync"`) // which is retained
	return r
}

// watch measures for how long nothing runs on this machine.
func (r *recorder) watch(ctx context.Context) {
	const each = 50 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		time.Sleep(each)
		r.stood.Store(max(r.stood.Load(), int64(time.Since(began)-each)))
	}
}

// has waits until the recording has a text.
func (r *recorder) has(t *testing.T, text string) {
	t.Helper()
	kit.Eventually(t, "the recording to have "+text, func() error {
		data, err := os.ReadFile(r.path)
		if err == nil && !bytes.Contains(data, []byte(text)) {
			err = fmt.Errorf("it has %d bytes without it", len(data))
		}
		return err
	})
}

// stop ends the recording.
func (r *recorder) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("kubelot tap --record: %v\n%s", err, &r.out)
	}
}

// recheck is what is used of the answer of kubelot replay --check.
type recheck struct {
	Cores []struct {
		Name string `json:"name"`
		Same int    `json:"same"`
	} `json:"cores"`
	Differences []json.RawMessage `json:"differences"`
}

// decides ends a recording and checks it: this version decides as was recorded, and so many decisions of each core were
// judged. How many readings and statuses there are depends on how busy the machine is.
func decides(t *testing.T, r *recorder, least map[string]int) {
	t.Helper()
	r.stop(t)
	cmd := exec.CommandContext(t.Context(), bed.Program("kubelot"), "replay", "--check", "-o=json", r.path)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var answer recheck
	if bad := json.Unmarshal(stdout.Bytes(), &answer); err != nil || bad != nil || len(answer.Differences) > 0 {
		if stood := time.Duration(r.stood.Load()); stood > mostStood && bad == nil {
			t.Skipf("the machine has stood still for %s, so this difference says nothing:\n%s", stood, &stdout)
		}
		t.Fatalf("kubelot replay --check: %v, %v\n%s%s", err, bad, &stdout, &stderr)
	}
	for _, core := range answer.Cores {
		if core.Same < least[core.Name] {
			t.Errorf("%d decisions of %s are the same, want at least %d:\n%s", core.Same, core.Name, least[core.Name],
				&stdout)
		}
	}
}

// goOn lets the recording go on for longer than a decision may take.
func goOn(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// judgedAfter is how long nothing must be said of a pod until the check expects its decisions to be made.
const judgedAfter = 12 * time.Second

// The version that runs decides as it decided, and a recording answers as the node did.
func TestReplayCrashLoop(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	r := record(t, ns, "crashloop")
	ns.Apply(pod("crash", `  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "exit 3"],`+
		` env: [{name: PASSWORD, value: geheim}]}]`+"\n"))
	ns.Wait("crash", "third run", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount >= 3 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
	r.has(t, `"remove container"`) // a run of which there are newer ones
	goOn(t, judgedAfter)
	decides(t, r, map[string]int{"plan": 9, "status": 4, "merge": 4, "diff": 3, "pick": 1})

	data, err := os.ReadFile(r.path)
	if err != nil || bytes.Contains(data, []byte("geheim")) {
		t.Errorf("%v, or the recording has the secret", err)
	}
	answer, err := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), "why", "--replay="+r.path,
		ns.Name+"/crash"))
	// Whether it waits or just starts again when the recording ends depends on how busy the machine is.
	if err != nil || !strings.Contains(answer, "start container app") {
		t.Errorf("kubelot why --replay: %v\n%s", err, answer)
	}
}

func TestReplayProbes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	r := record(t, ns, "probes")
	ns.Apply(pod("probed", idle(`readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, `+quick+`}, `+
		`livenessProbe: {exec: {command: [test, "!", -e, /tmp/sick]}, `+quick+`}`)))
	p := unready(ns, "probed")
	ns.Exec(p, "app", "touch /tmp/ready")
	p = ns.Wait("probed", "Ready", kit.Ready)
	ns.Exec(p, "app", "touch /tmp/sick")
	ns.Restarted(p, "app", 1)
	unready(ns, "probed")
	goOn(t, judgedAfter)
	decides(t, r, map[string]int{"plan": 5, "status": 3, "merge": 4, "diff": 1})
}

func TestReplayDeletion(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	r := record(t, ns, "deletion")
	ns.Apply(pod("gone", `  volumes: [{name: v, emptyDir: {}}]
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: v, mountPath: /v}],
     lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}}
`))
	p := ns.Wait("gone", "Ready", kit.Ready)
	goOn(t, judgedAfter)
	ns.Delete("gone", 5)
	ns.Gone(p)
	goOn(t, judgedAfter)
	decides(t, r, map[string]int{"plan": 6, "status": 3, "merge": 3, "diff": 1})
}

func TestReplayCompletion(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	r := record(t, ns, "completion")
	ns.Apply(pod("job", `  restartPolicy: OnFailure
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - {name: prepare, image: "busybox:1.36", command: [sh, -c, "echo 1 > /v/runs"],
     volumeMounts: [{name: v, mountPath: /v}]}
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, "test -e /v/again || { touch /v/again; exit 1; }"],
     volumeMounts: [{name: v, mountPath: /v}]}
`))
	ns.Phase("job", corev1.PodSucceeded)
	goOn(t, judgedAfter)
	decides(t, r, map[string]int{"plan": 8, "status": 3, "merge": 3, "diff": 2})
}

// An eviction for a limit of the pod's own: the threshold's is in test/e2e/gc.
func TestReplayEviction(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	r := record(t, ns, "limit")
	ns.Apply(pod("greedy", `  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]
  containers:
  - {name: app, image: "busybox:1.36", volumeMounts: [{name: v, mountPath: /v}],
     command: [sh, -c, 'dd if=/dev/zero of=/v/much bs=1M count=8; `+forever+`']}
`))
	p := ns.Phase("greedy", corev1.PodFailed)
	if p.Status.Reason != "Evicted" {
		t.Errorf("the pod has failed because of %q: %s", p.Status.Reason, p.Status.Message)
	}
	goOn(t, judgedAfter)
	decides(t, r, map[string]int{"plan": 5, "status": 3, "merge": 3, "diff": 1})
	if t.Failed() {
		t.Log(fmt.Sprint("evicted: ", p.Status.Message))
	}
}
