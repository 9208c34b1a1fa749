package cli

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Pods of another agent stay: of one that keeps this crew from starting, and of a kubelet.
func TestPodsOfAnotherAgentStay(t *testing.T) {
	dir := t.TempDir()
	flags := []string{
		"--run-dir=" + dir, "--root-dir=" + dir, "--hostname-override=n",
		"--container-runtime-endpoint=unix://" + dir + "/none.sock",
	}
	code, _, stderr := call(t, append([]string{"kubelot", "up", "--down", "--bin-dir=" + dir}, flags...)...)
	if code != 1 || !strings.Contains(stderr, "make build") || strings.Contains(stderr, "removing all pods") {
		t.Errorf("a crew that didn't start: exit code %d, %s", code, stderr)
	}
	kubelet := exec.CommandContext(t.Context(), "/bin/sh")
	kubelet.Args = []string{"kubelet", "-c", "read end", "--root-dir=" + dir}
	stdin, err := kubelet.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = call(t, append([]string{"kubelot", "down"}, flags...)...)
	if code != 1 || !strings.Contains(stderr, "no pod was removed: a kubelet (process ") {
		t.Errorf("while a kubelet runs: exit code %d, %s", code, stderr)
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	_ = kubelet.Wait() // its exit code says that there was nothing to read
}

// Containers that a crew looks after would only be started again.
func TestContainersOfACrewGoOn(t *testing.T) {
	dir := t.TempDir()
	bus, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "bus.sock"))
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr := call(t, "kubelot", "shutdown", "containers", "--run-dir="+dir, "--hostname-override=n",
		"--container-runtime-endpoint=unix://"+dir+"/none.sock")
	if code != 1 || !strings.Contains(stderr, "a bus already answers") {
		t.Errorf("while a crew runs: exit code %d, %s", code, stderr)
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
}
