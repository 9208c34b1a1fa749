package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestMain(m *testing.M) {
	completePatience, busPatience = time.Minute, time.Minute
	os.Exit(m.Run())
}

// call runs a whole command line, with the program's name, and returns its exit code and both outputs.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	code = run(args, files[0], files[1])
	var texts [2]string
	for i, f := range files {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	return code, texts[0], texts[1]
}

func TestCommands(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"version":          {args: []string{"version"}, stdout: "kubelot "},
		"help":             {args: []string{"--help"}, stdout: "tap"},
		"completion":       {args: []string{"completion", "bash"}, stdout: "bash completion"},
		"topic completion": {args: []string{"__complete", "tap", "--topic", "pod"}, stdout: "pod.update"},
		"unknown command":  {args: []string{"tab"}, code: 1, stderr: "tap"},
		"tap without a bus": {
			args: []string{"tap", "--run-dir", empty}, code: 1,
			stderr: "there is no key of the bus at " + empty,
		},
		"bad output": {args: []string{"tap", "-o", "xml"}, code: 1, stderr: "want text, wide, short or json"},
		"pods":       {args: []string{"pods", "--run-dir", empty}, code: 1, stderr: "start the crew"},
		"up without crew": {
			args: []string{"up", "--run-dir", empty, "--bin-dir", empty, "--hostname-override=n"}, code: 1,
			stderr: "make build",
		},
		"up bad config":   {args: []string{"up", "--max-pods=-1"}, code: 1, stderr: "maxPods (set in the command line)"},
		"down bad config": {args: []string{"down", "--config=/does/not/exist"}, code: 1, stderr: "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"kubelot"}, c.args...)...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
		})
	}
}

func TestKubelet(t *testing.T) {
	if code, stdout, _ := call(t, "/usr/bin/kubelet", "--version"); code != 0 || stdout != "Kubernetes v1.36.3\n" {
		t.Errorf("kubelet --version: exit code %d, %q", code, stdout)
	}
	dir := t.TempDir()
	t.Setenv("KUBELOT_HAND_OVER", filepath.Join(dir, "kubelet.env"))
	t.Setenv("PATH", dir)
	code, _, stderr := call(t, "kubelet", "--config=/does/not/exist", "--hostname-override=n")
	if code != 1 || !strings.HasPrefix(stderr, "kubelet: ") || !strings.Contains(stderr, "/does/not/exist") {
		t.Errorf("without its configuration: exit code %d, %q", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubelet.env")); err == nil {
		t.Error("flags that are wrong were handed over")
	}
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = call(t, "kubelet", "--hostname-override=n", "--node-labels=a=b,c=d", "--v=2")
	text, err := os.ReadFile(filepath.Join(dir, "kubelet.env"))
	want := "KUBELOT_ARGS=\"--hostname-override=n --node-labels=a=b,c=d --v=2\"\n"
	if code != 0 || err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("exit code %d, %q; handed over %q, %v, want %q", code, stderr, text, err, want)
	}
}

// A person who asks for help sees at once how it is done.
func TestEveryCommandHasAnExample(t *testing.T) {
	root := Command(os.Stdout, os.Stderr)
	for _, c := range append(root.Commands(), root) {
		if !strings.HasPrefix(c.Example, "  kubelot ") && c.Name() != "help" && c.Name() != "completion" {
			t.Errorf("kubelot %s --help has no example", c.Name())
		}
	}
}

// A script must know what a command's exit code means, and so must whoever changes it.
func TestEveryCommandExplainsItsExitCodes(t *testing.T) {
	checked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if c.Runnable() {
			checked++
			if !strings.Contains(c.Long, "\nExit codes: 0") {
				t.Errorf("%s --help doesn't explain the exit codes:\n%s", c.CommandPath(), c.Long)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(Command(os.Stdout, os.Stderr))
	walk(kubeletCommand(os.Stdout, os.Stderr))
	if checked < 25 {
		t.Errorf("only %d commands are found", checked)
	}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "kubelot "},
		{[]string{"-o", "json"}, 0, `"kubernetes": "` + KubernetesVersion + `"`},
		{[]string{"-o", "yaml"}, 1, ""},
	} {
		code, out, _ := call(t, append([]string{"kubelot", "version"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("version %v: code %d, %s", c.args, code, out)
		}
	}
}
