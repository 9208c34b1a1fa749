package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/cli/internal/bundle"
	"kubelot.dev/cli/internal/settings"
)

func TestExitCode(t *testing.T) {
	own := exitError{errors.New("x"), exitDiffers}
	for want, err := range map[int]error{0: nil, 1: errors.New("x"), 3: fmt.Errorf("y: %w", own)} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

// conf writes a configuration.
func conf(t *testing.T, fields string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigCheck(t *testing.T) {
	run := "--run-dir=" + t.TempDir() // no daemon runs with it
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"fine":     {[]string{"--config=" + conf(t, "maxPods: 5\n")}, 0, "ok      maxPods: 5 (default 110), set in ", ""},
		"json":     {[]string{"--config=" + conf(t, "maxPods: 5\n"), "-o=json"}, 0, `"from": "as given"`, ""},
		"problem":  {[]string{"--config=" + conf(t, "oomScoreAdj: -5\n")}, 2, "moot    oomScoreAdj", "one setting doesn't"},
		"unknown":  {[]string{"--config=" + conf(t, "a: 1\nb: 2\n")}, 2, "unknown configuration file", "2 settings don't"},
		"invalid":  {[]string{"--max-pods=-1"}, 1, "BAD     ", "no daemon starts with this configuration"},
		"flag":     {[]string{"--no-such-flag"}, 1, "", "unknown flag: --no-such-flag: kubelot has no such flag"},
		"value":    {[]string{"--max-pods=many"}, 1, "", "want a whole number"},
		"output":   {[]string{"-o=xml"}, 1, "", "want text or json"},
		"same":     {[]string{"--require-same", "--config=" + conf(t, "")}, 3, "default", "no daemon runs"},
		"argument": {[]string{"x"}, 1, "", "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"kubelot", "config", "check", run, "--hostname-override=n"}, c.args...)
			code, stdout, stderr := call(t, args...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
		})
	}
}

// The flags are those of the daemons or, where none run, those that the units would run them with.
func TestOwnFlags(t *testing.T) {
	dir := t.TempDir()
	crew := []settings.Daemon{{Name: "bus", Args: []string{"--max-pods=5"}}}
	args, from, err := ownFlags(crew, dir)
	if err != nil || from != "of the daemons that run" || strings.Join(args, " ") != "--max-pods=5" {
		t.Errorf("with a crew: %q, %s, %v", args, from, err)
	}
	file := filepath.Join(dir, "kubelet.env")
	if err := os.WriteFile(file, []byte("KUBELOT_ARGS=\"--max-pods=6\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args, from, err = ownFlags(nil, dir)
	if err != nil || from != "flags in "+file || strings.Join(args, " ") != "--max-pods=6" {
		t.Errorf("without a crew: %q, %s, %v", args, from, err)
	}
}

func TestVerdict(t *testing.T) {
	differs := &settings.Running{Different: []settings.Difference{{Name: "maxPods"}}}
	for name, c := range map[string]struct {
		o    checkOptions
		r    settings.Report
		code int
	}{
		"fine":       {code: 0},
		"differs":    {r: settings.Report{Running: differs}, code: 0},
		"must not":   {o: checkOptions{same: true}, r: settings.Report{Running: differs}, code: 3},
		"same":       {o: checkOptions{same: true}, r: settings.Report{Running: &settings.Running{}}, code: 0},
		"ignored":    {o: checkOptions{same: true}, r: settings.Report{Ignored: []string{"x"}, Running: differs}, code: 2},
		"one":        {r: settings.Report{Settings: []settings.Setting{{Problem: "x"}}}, code: 2},
		"can't load": {r: settings.Report{Error: "x"}, code: 1},
	} {
		if got := exitCode(c.o.verdict(c.r)); got != c.code {
			t.Errorf("%s: exit code %d, want %d", name, got, c.code)
		}
	}
}

// A recording is not overwritten, and without a bus none is begun.
func TestCreateNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	if code, _, _ := call(t, "kubelot", "tap", "--run-dir="+t.TempDir(), "--record="+path); code != 1 {
		t.Errorf("exit code %d", code)
	}
	file, err := createNew(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := createNew(path); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("error %v", err)
	}
}

// Without daemons the archive has what the machine alone says, and says what is missing.
func TestBundleWithoutCrew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	args := []string{"kubelot", "bundle", "--run-dir=" + t.TempDir(), "--file=" + file, "--max-size=8", "-o=json"}
	code, stdout, stderr := call(t, args...)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	var got struct {
		File string `json:"file"`
		Size int64  `json:"size"`
		bundle.Manifest
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Size() != got.Size || got.File != file || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, but the command says %+v", info, err, got)
	}
	entries := map[string]bundle.Entry{}
	for _, e := range got.Files {
		entries[e.Name] = e
	}
	if e := entries["mounts.txt"]; e.Bytes == 0 {
		t.Errorf("the mounts are missing: %+v", e)
	}
	for name, want := range map[string]string{
		"health.json": "there is no key of the bus", "processes.txt": "no daemon runs", "metrics": "no daemon has a socket",
	} {
		if e := entries[name]; !strings.Contains(e.Error, want) {
			t.Errorf("%s: %+v, want the error %q", name, e, want)
		}
	}
	if code, _, stderr := call(t, args...); code != 1 || !strings.Contains(stderr, "exists already") {
		t.Errorf("a file that is there: exit code %d, %s", code, stderr)
	}
	for _, wrong := range []string{"--max-size=0", "--since=-1s", "-o=xml"} {
		if code, _, _ := call(t, "kubelot", "bundle", "--file="+file+"x", wrong); code != 1 {
			t.Errorf("%s: exit code %d", wrong, code)
		}
	}
}
