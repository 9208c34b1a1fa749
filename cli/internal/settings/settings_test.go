package settings

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/daemon/config"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares with a file; the test's directory is left out of the text.
func golden(t *testing.T, name, got, dir string) {
	t.Helper()
	got = strings.ReplaceAll(got, dir, "DIR")
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -rewrite, then read the diff):\n%s", name, got)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// example is a configuration with a setting of each kind.
func example(t *testing.T, dir string) []string {
	t.Helper()
	file := write(t, filepath.Join(dir, "config.yaml"), head+`
maxPods: 50
cgroupDriver: systemd
clusterDomain: cluster.local
memoryThrottlingFactor: 0.5
memoryManagerPolicy: None
enableControllerAttachDetach: false
oomScoreAdj: -500
noSuchField: 1
staticPodURL: https://user:s3cr3t@example.com/pods
staticPodURLHeader:
  Authorization: [s3cr3t]
evictionHard: {memory.available: 200Mi}
enforceNodeAllocatable: []
`)
	write(t, filepath.Join(dir, "conf.d", "10-pods.conf"), head+"maxPods: 60\nclusterDomain: null\n")
	write(t, filepath.Join(dir, "conf.d", "README"), "no drop-in")
	return []string{
		"--config=" + file, "--config-dir=" + filepath.Join(dir, "conf.d"), "--hostname-override=n", "--max-pods=70",
		"--node-labels=a=b", "--pod-infra-container-image=pause", "--manifest-url-header=Authorization:s3cr3t",
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	r := Check(example(t, dir))
	r.From = "given"
	golden(t, "check.txt", Text(r, false, paint.Painter{}), dir)
	data, err := json.Marshal(r)
	if err != nil || strings.Contains(string(data), "s3cr3t") {
		t.Errorf("the secret shows: %v %s", err, data)
	}
	if got, want := r.Problems(), 4; got != want {
		t.Errorf("%d problems, want %d", got, want)
	}
}

// Each warning of the daemons is told once, so that nothing that has no effect is missed.
func TestAllWarningsAreTold(t *testing.T) {
	args := example(t, t.TempDir())
	_, resolved, err := load(args)
	if err != nil {
		t.Fatal(err)
	}
	r := Check(args)
	if got := r.Problems(); got != len(resolved.Warnings) || got == 0 {
		t.Errorf("%d problems are told, but the daemons warn of %d: %q", got, len(resolved.Warnings), resolved.Warnings)
	}
	for _, s := range r.Settings {
		if strings.Contains(s.Problem, "(set in") || s.Problem != "" && !strings.Contains(s.Problem, "effect") {
			t.Errorf("%s: problem is %q", s.Name, s.Problem)
		}
	}
}

// The table says something of each field and of each flag of the kubelet.
func TestEverySettingIsListed(t *testing.T) {
	r := Check([]string{"--hostname-override=n"})
	if r.Error != "" || r.Problems() != 0 {
		t.Fatalf("the defaults: %q, %d problems", r.Error, r.Problems())
	}
	names := map[string]Setting{}
	for _, s := range r.Settings {
		names[s.Name] = s
	}
	for _, field := range config.Fields {
		if names[field.Path].Level != field.Level {
			t.Errorf("field %s has the level %q, want %q", field.Path, names[field.Path].Level, field.Level)
		}
	}
	for name, want := range map[string]config.Level{
		"--node-ip": config.Supported, "--vmodule": config.Moot, "--run-dir": config.Supported,
	} {
		if got := names[name].Level; got != want {
			t.Errorf("flag %s has the level %q, want %q", name, got, want)
		}
	}
	if _, there := names["--max-pods"]; there {
		t.Error("--max-pods stands for a field and is listed as a flag too")
	}
	text := Text(r, true, paint.Painter{})
	for _, want := range []string{
		"\nmoot    runOnce: ", "\n        not yet: attaching volumes from the node", "\nok      maxPods: 110\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("with --all there is no %q in:\n%s", want, text)
		}
	}
	if text := Text(r, false, paint.Painter{}); strings.Count(text, "\n") != 2 {
		t.Errorf("defaults are no news:\n%s", text)
	}
}

func TestCheckTellsWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"value":        {[]string{"--max-pods=-1", "--hostname-override=n"}, "maxPods (set in the command line)"},
		"no file":      {[]string{"--config=/does/not/exist"}, "/does/not/exist"},
		"unknown flag": {[]string{"--no-such-flag=1"}, "unknown flag: --no-such-flag: kubelot has no such flag"},
		"bad drop-in": {
			[]string{"--config-dir=" + filepath.Dir(write(t, filepath.Join(dir, "d", "a.conf"), head+"maxPods: x\n"))},
			"maxPods",
		},
		"wrong type": {[]string{"--config=" + write(t, filepath.Join(dir, "a.yaml"), head+"maxPods: many\n")}, "maxPods"},
	} {
		r := Check(c.args)
		if !strings.Contains(r.Error, c.want) || r.Settings != nil {
			t.Errorf("%s: error %q, want %q", name, r.Error, c.want)
		}
		if text := Text(r, true, paint.Painter{}); !strings.Contains(text, "BAD     ") {
			t.Errorf("%s: the text is %q", name, text)
		}
	}
}

func TestFlagsOf(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"": "", "# nothing\nOTHER=1\n": "",
		"KUBELOT_ARGS=--max-pods=5 --hostname-override n\n":                     "--hostname-override=n --max-pods=5",
		"KUBELOT_ARGS=\"--max-pods=5 \\\"--node-labels=a=b\\\"\"\n":             "--max-pods=5 --node-labels=a=b",
		"KUBELOT_ARGS='--config=\"/a b/c\" --v=2'\nOTHER=1\n":                   "--config=/a b/c --v=2",
		"KUBELOT_ARGS=--log-style=json --v=2 --listen=127.0.0.1:4222\n":         "--v=2",
		`KUBELOT_ARGS="--config=/a\\ b --node-labels=x=\"y z\""` + "\n":         "--config=/a b --node-labels=x=y z",
		`KUBELOT_ARGS="--config=/\$a --hostname-override=\` + "`" + `n"` + "\n": "--config=/$a --hostname-override=`n",
	} {
		got, err := FlagsOf(write(t, filepath.Join(dir, "flags"), text))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := FlagsOf(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a file that isn't there has flags")
	}
	if _, err := FlagsOf(write(t, filepath.Join(dir, "flags"), "KUBELOT_ARGS=--max-pods=many\n")); err == nil {
		t.Error("flags that are wrong are no error")
	}
}

// machine is a /proc with these processes; each starts a minute after the one before it.
func machine(t *testing.T, home string, commands ...string) string {
	t.Helper()
	proc := t.TempDir()
	write(t, filepath.Join(proc, "stat"), "cpu 1 2 3\nbtime 1000000\n")
	for i, command := range commands {
		dir := filepath.Join(proc, []string{"10", "20", "30", "40", "50", "60"}[i])
		write(t, filepath.Join(dir, "cmdline"), strings.ReplaceAll(command, " ", "\x00")+"\x00")
		ticks := []string{"0", "6000", "12000", "18000", "24000", "30000"}[i]
		write(t, filepath.Join(dir, "stat"), "10 (a ) b) S 1"+strings.Repeat(" 0", 17)+" "+ticks+" 0 0\n")
		if err := os.Symlink(home, filepath.Join(dir, "cwd")); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func TestCrew(t *testing.T) {
	home := "/home/x"
	proc := machine(t, home,
		"/usr/lib/kubelot/bin/kubelot-podsync --config=c.yaml --log-style=json --run-dir /run/a",
		"kubelot-compact run pleg,bus --run-dir=/run/a/ --v=3 --compact-only",
		"/bin/sh -c kubelot-gc --run-dir=/run/a",
		"kubelot-all gc --run-dir=../../run/a",
		"kubelot-lease --run-dir=/run/b",
		"kubelot-debug config check --run-dir=/run/a")
	crew, err := Crew(proc, "/run/a")
	if err != nil {
		t.Fatal(err)
	}
	boot := time.Unix(1000000, 0)
	want := []Daemon{
		{"bus", 20, boot.Add(time.Minute), []string{"--run-dir=/run/a", "--v=3"}},
		{"gc", 40, boot.Add(3 * time.Minute), []string{"--run-dir=/run/a"}},
		{"pleg", 20, boot.Add(time.Minute), []string{"--run-dir=/run/a", "--v=3"}},
		{"podsync", 10, boot, []string{"--config=/home/x/c.yaml", "--run-dir=/run/a"}},
	}
	equal := func(a, b Daemon) bool {
		return a.Name == b.Name && a.PID == b.PID && a.Started.Equal(b.Started) && slices.Equal(a.Args, b.Args)
	}
	if !slices.EqualFunc(crew, want, equal) {
		t.Errorf("the crew is\n%v, want\n%v", crew, want)
	}
	t.Chdir("/")
	if crew, err := Crew(proc, "run/b"); err != nil || len(crew) != 1 {
		t.Errorf("the crew of a relative directory is %v, %v", crew, err)
	}
	if _, err := Crew(t.TempDir(), "/run/a"); err == nil {
		t.Error("without /proc/stat there is no error")
	}
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	old := write(t, filepath.Join(dir, "config.yaml"), head+"maxPods: 50\nstaticPodURLHeader: {A: [s3cr3t]}\n")
	other := write(t, filepath.Join(dir, "new.yaml"), head+"maxPods: 60\nstaticPodURLHeader: {A: [s3cr4t]}\n")
	before, after := time.Unix(1000, 0), time.Unix(2000, 0)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config=" + old, "--hostname-override=n", "--node-ip=10.0.0.1"}
	crew := []Daemon{{"bus", 1, after, args}, {"podsync", 2, after, args}}
	if r := Compare(nil, crew); !r.Same() {
		t.Errorf("the same configuration differs: %+v", r)
	}
	if r := Compare(nil, nil); r != nil {
		t.Errorf("without daemons there is nothing to compare: %+v", r)
	}
	crew[1].Args = append(slices.Clone(args), "--v=4", "--manifest-url-header=A:s3cr3t")
	crew[1].Started = before.Add(-time.Hour)
	r := Compare([]string{"--config=" + other, "--node-ip=10.0.0.2"}, crew)
	for i := range r.Daemons { // times are shown in the zone of the machine
		r.Daemons[i].Started = r.Daemons[i].Started.UTC()
	}
	text := strings.ReplaceAll(runningText(*r, paint.Painter{}), before.Format(time.RFC3339), "BEFORE")
	golden(t, "compare.txt", text, dir)
	data, err := json.Marshal(r)
	if err != nil || strings.Contains(string(data), "s3cr") {
		t.Errorf("the secret shows: %v %s", err, data)
	}
	if r := Compare([]string{"--max-pods=-1"}, crew); !strings.Contains(r.Error, "would not start with this") {
		t.Errorf("a wrong configuration: %+v", r)
	}
	write(t, old, "garbage")
	if r := Compare(nil, crew); !strings.Contains(r.Error, "would not start again") || r.Same() {
		t.Errorf("a file that has become wrong: %+v", r)
	}
}

func TestOverlay(t *testing.T) {
	got := overlay([]string{"--a=1", "--b=2", "--a=3", "--bc=4"}, []string{"--a=5", "--b=6"})
	if want := []string{"--bc=4", "--a=5", "--b=6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
