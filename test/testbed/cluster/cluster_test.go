package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
)

// The test runs itself as a user of a cluster with a running sandbox, kills
// that, and expects the cleaner to remove everything.
func TestKilledRunLeavesNothing(t *testing.T) {
	if dir := os.Getenv("CLUSTER_TEST_DIR"); dir != "" {
		beKilled(t, dir)
		return
	}
	dir := t.TempDir()
	victim := exec.Command(os.Args[0], "-test.run=^TestKilledRunLeavesNothing$", "-test.v")
	victim.Env = append(os.Environ(), "CLUSTER_TEST_DIR="+filepath.Join(dir, "bed"))
	victim.Stdout, victim.Stderr = os.Stderr, os.Stderr
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = victim.Wait(); close(ended) }()
	running := filepath.Join(dir, "bed", "running")
	await(t, "the cluster to run", 15*time.Minute, func() bool {
		select {
		case <-ended:
			t.Fatal("the cluster did not start")
		default:
		}
		return exists(running)
	})
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	await(t, "the cleaner to be done", 3*time.Minute, func() bool {
		return !exists(filepath.Join(dir, "bed", "bed.json"))
	})
	b, err := bed.Open(filepath.Join(dir, "bed"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if left, err := b.Leftovers(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (error %v)", left, err)
	}
}

func beKilled(t *testing.T, dir string) {
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CRI.Runtime().RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
		Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "doomed", Namespace: "test", Uid: "1"},
			Linux:    &runtimeapi.LinuxPodSandboxConfig{CgroupParent: c.Bed.CgroupRoot + "/doomed"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	left, err := c.Bed.Leftovers()
	if err != nil || len(left) < 5 {
		t.Fatalf("a running bed has only %v (error %v)", left, err)
	}
	if err := os.WriteFile(c.Bed.Path("running"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func await(t *testing.T, what string, patience time.Duration, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
