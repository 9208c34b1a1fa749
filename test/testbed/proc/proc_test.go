package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWaitReadyTellsWhyItEnded(t *testing.T) {
	p, err := Start(Spec{
		Name: "broken", Path: "/bin/sh", Args: []string{"-c", "echo no such flag; exit 3"},
		Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = p.WaitReady(t.Context(), func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v, want the exit status and the log", err)
	}
}

func TestExitCode(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -KILL $$": -1} {
		p, err := Start(Spec{Name: "ends", Path: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if got := p.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
	}
}

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	dir := t.TempDir()
	p, err := Start(Spec{Name: "deaf", Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo deaf; while :; do " +
		"sleep 1; done"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitReady(t.Context(), func(context.Context) error {
		if p.LogTail(100) != "deaf\n" {
			return errors.New("it hears yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.Stop(50 * time.Millisecond)
	if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", p.PID(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "deaf.pid")); !os.IsNotExist(err) {
		t.Errorf("PID file is still there: %v", err)
	}
}

// The test runs itself as a starter that is then killed.
func TestChildDiesWithItsStarter(t *testing.T) {
	if dir := os.Getenv("PROC_TEST_STARTER"); dir != "" {
		if _, err := Start(Spec{Name: "child", Path: "/bin/sleep", Args: []string{"600"}, Dir: dir}); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	dir := t.TempDir()
	starter := exec.Command(os.Args[0], "-test.run=^TestChildDiesWithItsStarter$")
	starter.Env = append(os.Environ(), "PROC_TEST_STARTER="+dir)
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	pid := awaitPID(t, filepath.Join(dir, "child.pid"))
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait()
	deadline := time.Now().Add(time.Minute)
	for alive(pid) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("child %d outlived its starter", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func awaitPID(t *testing.T, path string) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(path)
		if pid, convErr := strconv.Atoi(string(data)); err == nil && convErr == nil {
			return pid
		}
	}
	t.Fatalf("%s did not appear", path)
	return 0
}

// alive is false for a zombie that nobody reaps, as in a container without an init.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
