package running

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestUnit(t *testing.T) {
	for text, want := range map[string]string{
		"0::/kubelot.slice/kubelot-gc.service\n":                                         "kubelot-gc.service",
		"2:cpu:/\n1:name=systemd:/kubelot.slice/kubelot-gc.service\n0::/kubelot.slice\n": "kubelot-gc.service",
		"0::/user.slice/session.scope\n":                                                 "",
		"0::/kubelot.slice/kubelot-api.service\n":                                        "",
		"1:name=systemd:/docker/1234\n0::/system.slice/run-kubelot-up.service\n":         "",
	} {
		path := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := unitOf(path, "kubelot-gc"); got != want {
			t.Errorf("%q: the unit %q, want %q", text, got, want)
		}
	}
}

// This process is found by the name that it was started by.
func TestProcess(t *testing.T) {
	p := Of(os.Args[0])
	executable, err := filepath.EvalSymlinks(os.Args[0])
	if err != nil || p.PID != os.Getpid() || p.Executable != executable {
		t.Errorf("%+v, %v; want process %d of %s", p, err, os.Getpid(), executable)
	}
	if p := Of("/no/such"); p.PID != 0 {
		t.Errorf("%+v", p)
	}
	_, err = VersionOf(t.Context(), "/bin/true")
	if err == nil || !strings.Contains(err.Error(), "as no daemon of kubelot does") {
		t.Errorf("%v", err)
	}
}

// A process is known by the file that it runs, also when another file has taken its place.
func TestReplaced(t *testing.T) {
	data, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	one, link := filepath.Join(dir, "one"), filepath.Join(dir, "kubelot-gc")
	if err := os.WriteFile(one, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("one", link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), link, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	if p := Of(link); p.PID != cmd.Process.Pid || p.Executable != one || p.Replaced {
		t.Errorf("%+v; want process %d of %s", p, cmd.Process.Pid, one)
	}
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	p := Of(link)
	if p.PID != cmd.Process.Pid || p.Executable != one || !p.Replaced {
		t.Errorf("%+v; want process %d of %s, which was replaced", p, cmd.Process.Pid, one)
	}
	for range 2 {
		if err := p.Terminate(); err != nil {
			t.Error(err)
		}
	}
}

// Whoever runs a program may give it any name. It isn't taken for a daemon, and root doesn't run it.
func TestOthersProcessesAreNotFound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it runs a program as another user")
	}
	const path = "/usr/lib/kubelot/bin/kubelot-of-a-test"
	start := func(as *syscall.SysProcAttr) *exec.Cmd {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sleep")
		cmd.Args, cmd.Dir, cmd.SysProcAttr = []string{path, "1000"}, "/", as
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() })
		return cmd
	}
	start(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	if p := Of(path); p.PID != 0 {
		t.Errorf("another user's process is found: %+v", p)
	}
	if own := start(nil); Of(path).PID != own.Process.Pid {
		t.Errorf("%+v, want process %d", Of(path), own.Process.Pid)
	}
}

// Only what nobody else can have made is run.
func TestTrusted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelot-gc")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := trusted(f); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Chmod(0o775), trusted(f)); err == nil {
		t.Error("a file that others can write is trusted")
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(f.Chmod(0o755), f.Chown(65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if trusted(f) == nil {
		t.Error("another user's file is trusted")
	}
}
