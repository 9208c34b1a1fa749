package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/livetest"
)

// storyFile is the story of a small node as a file.
func storyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "story.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := livetest.Record(file); err != nil {
		t.Fatal(err)
	}
	return path
}

// callTop runs the command and returns what it printed.
func callTop(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := topCommand(out)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	failure := c.ExecuteContext(t.Context())
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failure
}

func TestTopOfARecording(t *testing.T) {
	path, empty := storyFile(t), t.TempDir()
	for name, c := range map[string]struct {
		args   []string
		stdout []string
		err    string
	}{
		"text, as the output is no terminal": {
			args: []string{"--replay", path}, stdout: []string{"DAEMON", "default/broken", "registry.example", "OF LATE"},
		},
		"an earlier moment": {args: []string{"--replay", path, "--at", "5s"}, stdout: []string{"default/web"}},
		"a moment as a time": {
			args: []string{"--replay", path, "--at", "2026-11-20T12:00:12Z", "--once"}, stdout: []string{"default/broken"},
		},
		"no recording":  {args: []string{"--replay", os.Args[0]}, err: os.Args[0] + ": "},
		"no file":       {args: []string{"--replay", empty + "/none"}, err: "none: no such file"},
		"bad output":    {args: []string{"-o", "yaml"}, err: "want text or json"},
		"bad speed":     {args: []string{"--replay", path, "--speed", "-1"}, err: "--speed -1"},
		"bad time":      {args: []string{"--replay", path, "--at", "noon"}, err: "--at"},
		"without a bus": {args: []string{"--once", "--run-dir", empty}, err: "there is no key of the bus at"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, err := callTop(t, c.args...)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v\nstdout %s", err, stdout)
			}
			for _, want := range c.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("it doesn't say %q:\n%s", want, stdout)
				}
			}
		})
	}
}

func TestTopAsJSON(t *testing.T) {
	stdout, failure := callTop(t, "--replay", storyFile(t), "-o", "json", "--at", "12s")
	var p live.Picture
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || failure != nil {
		t.Fatalf("%v, %v\n%s", failure, err, stdout)
	}
	if len(p.Pods) != 3 || !p.At.Equal(livetest.At(12e9)) || p.Pods[0].Sentence == "" || len(p.Daemons) == 0 {
		t.Errorf("%+v", p)
	}
}
