package act

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/worker"
)

// A container whose start fails for weeks, every few seconds, mustn't use up the node's inodes.
func TestTriesOfAStartLeaveOneTerminationLog(t *testing.T) {
	a, _ := newActor(t, &busyRuntime{until: time.Now().Add(time.Hour)}, func() bool { return false })
	pod := hooked()
	pod.Spec.Containers[0].TerminationMessagePath = corev1.TerminationMessagePathDefault
	for range 3 {
		out := a.Do(t.Context(), worker.Snapshot{Pod: pod, Obs: sandboxed()}, plan.Action{Kind: plan.StartContainer, Container: "app", SandboxID: "s1", Attempt: 2})
		if out.Err == nil {
			t.Fatal("the start didn't fail")
		}
	}
	files, err := os.ReadDir(filepath.Join(a.Node.CRI().RootDir, "pods", "u1", "containers", "app"))
	if err != nil || len(files) != 1 {
		t.Errorf("%v: %d files are left, want one", err, len(files))
	}
}
