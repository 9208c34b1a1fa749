package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
)

// asProgram in the environment of a test process makes it the program.
const asProgram = "KUBELOT_TEST_SCRIPTED_CRI"

const image = "docker.io/library/busybox:1.36"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs the program at the socket and returns a client of it, and what kills it.
func start(t *testing.T, socket string) (*cri.Client, func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := exec.Command(self, "--socket="+socket)
	program.Env, program.Stderr = append(os.Environ(), asProgram+"=1"), os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = program.Process.Kill()
		_ = program.Wait() // reports the kill
	}
	t.Cleanup(kill)
	client, err := cri.Dial("unix://"+socket, cri.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err = client.Version(ctx); err == nil {
			return client, kill
		}
		if ctx.Err() != nil {
			t.Fatalf("the runtime doesn't answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestProgramMeetsTheSuite(t *testing.T) {
	dir, err := os.MkdirTemp("", "scripted") //nolint:usetesting // a test's name can make t.TempDir longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "cri.sock")
	_, kill := start(t, socket)
	kill() // and leaves its socket, which the next one replaces
	client, _ := start(t, socket)
	if _, err := client.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: image}, nil, nil); err != nil {
		t.Fatal(err)
	}
	logs := t.TempDir()
	critest.Suite(t, critest.Target{Client: client, Image: image, LogDir: logs})
	if entries, err := os.ReadDir(logs); err != nil || len(entries) == 0 {
		t.Errorf("no container has a log: %v, %v", entries, err)
	}
}
