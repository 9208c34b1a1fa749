package cli

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/cli/internal/takeover"
	"kubelot.dev/daemon/config"
)

// The kubelet's flags are taken along unless the units have them already.
func TestSameFlags(t *testing.T) {
	args := []string{"--hostname-override=n", "--node-labels=a=b", "--v=2"}
	for text, want := range map[string]bool{
		"":                                     false,
		"# nothing\n":                          false,
		"KUBELOT_ARGS=--hostname-override=n\n": false,
		"KUBELOT_ARGS=\"--node-labels a=b --v 2 --hostname-override n\"\nX=1\n": true,
		"KUBELOT_ARGS='--no-such'\n": false,
	} {
		path := filepath.Join(t.TempDir(), "kubelot")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if same, err := sameFlags(path, args); same != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, same, err, want)
		}
	}
	if same, err := sameFlags(filepath.Join(t.TempDir(), "absent"), args); same || err != nil {
		t.Errorf("without a file the units have no flags: %v, %v", same, err)
	}
	if _, err := sameFlags(t.TempDir(), args); err == nil {
		t.Error("a file that can't be read is no error")
	}
}

func TestTakeoverWithoutKubelet(t *testing.T) {
	o := takeoverOptions{rootDir: t.TempDir(), output: "text", stdout: os.Stdout, stderr: os.Stderr}
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "there is nothing to take over") {
		t.Error(err)
	}
	err := becomeKubelet(t.Context(), os.Stdout, t.TempDir(), []string{"/etc/passwd"})
	if err == nil || !strings.Contains(err.Error(), "can't be run") {
		t.Error(err)
	}
	err = becomeKubelet(t.Context(), os.Stdout, t.TempDir(), []string{"/bin/true"})
	if err == nil || !strings.Contains(err.Error(), "no kubelot up runs") {
		t.Error(err)
	}
}

// A takeover goes on if its terminal is closed, and if nobody reads its output any more.
func TestOutlive(t *testing.T) {
	const variable = "KUBELOT_TEST_OUTLIVE"
	if os.Getenv(variable) != "" {
		stop := outlive()
		err := syscall.Kill(os.Getpid(), syscall.SIGHUP)
		_, writeErr := os.Stdout.WriteString("nobody reads this")
		stop()
		if err != nil || !errors.Is(writeErr, syscall.EPIPE) {
			os.Exit(9)
		}
		os.Exit(7)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutlive$")
	cmd.Env = append(os.Environ(), variable+"=1")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	err = cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it ended with %v, want that it goes on to its own end", err)
	}
	if err := write.Close(); err != nil {
		t.Error(err)
	}
}

// An upgrade goes on if its terminal is closed: between two daemons nobody would look after the crew. Here it is closed
// when the command begins, which then ends by itself for want of a bus.
func TestUpgradeOutlivesItsTerminal(t *testing.T) {
	const variable = "KUBELOT_TEST_UPGRADE"
	if dir := os.Getenv(variable); dir != "" {
		busPatience = 10 * time.Millisecond
		os.Exit(run([]string{"kubelot", "upgrade", "v9.9.9", "--run-dir=" + dir}, os.Stdout, os.Stderr))
	}
	dir := t.TempDir()
	// The command waits here until somebody gives it its key.
	key := filepath.Join(dir, "keys", Contract.Daemon+".nk")
	if err := errors.Join(os.Mkdir(filepath.Dir(key), 0o755), syscall.Mkfifo(key, 0o600)); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUpgradeOutlivesItsTerminal$")
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+dir), &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	giver, err := os.OpenFile(key, os.O_WRONLY, 0)
	if err == nil {
		err = errors.Join(os.Remove(key), cmd.Process.Signal(syscall.SIGHUP), giver.Close())
	}
	if err != nil {
		t.Fatal(errors.Join(err, cmd.Process.Kill(), cmd.Wait()))
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "the bus doesn't answer") {
		t.Errorf("it ended with %v, want that it goes on to its own end:\n%s", err, &stderr)
	}
}

// A script learns from the JSON what stands against a takeover, and finds the list even when it is empty.
func TestTakeoverCheckAsJSON(t *testing.T) {
	for name, c := range map[string]struct {
		volume string
		ok     bool
	}{
		"nothing against it":   {"kubernetes.io~empty-dir", true},
		"a volume of long ago": {"kubernetes.io~flocker", false},
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "pods", "uid", "volumes", c.volume, "v"), 0o755); err != nil {
			t.Fatal(err)
		}
		stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		defer stdout.Close()
		o := takeoverOptions{check: true, output: "json", stdout: stdout}
		kubelet := takeover.Process{PID: 7, Executable: "/bin/kubelet", Args: []string{"kubelet", "--v=2"}}
		err = o.findings(kubelet, &config.Config{RootDir: root})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		text, readErr := os.ReadFile(stdout.Name())
		var report takeoverReport
		if jsonErr := json.Unmarshal(text, &report); readErr != nil || jsonErr != nil {
			t.Fatalf("%s: %v, %v\n%s", name, readErr, jsonErr, text)
		}
		if report.OK != c.ok || report.Kubelet.PID != 7 || report.Findings == nil ||
			slices.ContainsFunc(report.Findings, func(f takeover.Finding) bool { return f.Stops }) == c.ok {
			t.Errorf("%s: %s", name, text)
		}
	}
	code, _, stderr := call(t, "kubelot", "takeover", "-o=json")
	if code != 1 || !strings.Contains(stderr, "only --check has an answer") {
		t.Errorf("a takeover as JSON: exit code %d, %s", code, stderr)
	}
}
