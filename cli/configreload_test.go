package cli

import (
	"strings"
	"testing"

	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/daemon"
)

func TestConfigReload(t *testing.T) {
	run := "--run-dir=" + t.TempDir() // no daemon runs with it
	for name, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"nobody":   {nil, "no daemon runs with the run directory "},
		"output":   {[]string{"-o=xml"}, "want text or json"},
		"argument": {[]string{"x"}, "unknown command"},
	} {
		args := append([]string{"kubelot", "config", "reload", run}, c.args...)
		if code, stdout, stderr := call(t, args...); code != 1 || stdout != "" || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit code %d\nstdout %s\nstderr %s", name, code, stdout, stderr)
		}
	}
}

// The exit code says whether all is taken; an error counts more than a restart.
func TestReloadVerdict(t *testing.T) {
	wrong := settings.DaemonReload{Reloaded: daemon.Reloaded{Daemon: "gc", Error: "no"}}
	for name, c := range map[string]struct {
		report settings.Reload
		code   int
	}{
		"all is taken":    {settings.Reload{Fields: []settings.FieldReload{{Name: "a", Taken: []string{"gc"}}}}, 0},
		"nothing changed": {settings.Reload{}, 0},
		"restart":         {settings.Reload{Units: []string{"kubelot-gc"}}, exitProblems},
		"error":           {settings.Reload{Daemons: []settings.DaemonReload{wrong}, Units: []string{"kubelot-gc"}}, 1},
	} {
		if code := exitCode(reloadVerdict(c.report)); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
	}
}
