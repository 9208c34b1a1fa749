package executor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// A container whose start fails for weeks, every few seconds, mustn't use up the node's inodes.
func TestTriesOfAStartLeaveOneTerminationLog(t *testing.T) {
	a, _ := newExecutor(t, &busyRuntime{until: time.Now().Add(time.Hour)})
	pod := hooked()
	pod.Spec.Containers[0].TerminationMessagePath = corev1.TerminationMessagePathDefault
	for range 3 {
		out := a.Do(t.Context(), worker.Snapshot{Pod: pod, Obs: sandboxed()}, plan.Action{
			Kind:      plan.StartContainer,
			Container: "app", SandboxID: "s1", Attempt: 2,
		})
		if out.Err == nil {
			t.Fatal("the start didn't fail")
		}
	}
	files, err := os.ReadDir(filepath.Join(a.containers.builder.node.CRI().RootDir, "pods", "u1", "containers", "app"))
	if err != nil || len(files) != 1 {
		t.Errorf("%v: %d files are left, want one", err, len(files))
	}
}

// What the run has left that an earlier process began mustn't be wiped by the try to begin it again.
func TestATryOfAStartKeepsTheTerminationLog(t *testing.T) {
	a, _ := newExecutor(t, &busyRuntime{until: time.Now().Add(time.Hour)})
	pod := hooked()
	pod.Spec.Containers[0].TerminationMessagePath = corev1.TerminationMessagePathDefault
	dir := filepath.Join(a.containers.builder.node.CRI().RootDir, "pods", "u1", "containers", "app")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "2")
	if err := os.WriteFile(log, []byte("its last words"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Do(t.Context(), worker.Snapshot{Pod: pod, Obs: sandboxed()}, plan.Action{
		Kind: plan.StartContainer, Container: "app",
		SandboxID: "s1", Attempt: 2,
	})
	data, err := os.ReadFile(log)
	info, statErr := os.Stat(log)
	if err != nil || statErr != nil || string(data) != "its last words" || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v: the log holds %q, want it as it was and open to all", err, statErr, data)
	}
}
