package upgrade

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/running"
)

func TestOrder(t *testing.T) {
	kinds := map[string]kind{"volume": moved, "bus": moved, "api": idle, "resource": fresh, "gc": gone}
	for _, c := range []struct {
		older bool
		want  string
	}{
		{false, "bus resource volume gc api"},
		{true, "resource volume gc bus api"},
	} {
		got := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
			return cmp.Compare(place(a, kinds[a], c.older), place(b, kinds[b], c.older))
		})
		if strings.Join(got, " ") != c.want {
			t.Errorf("to an older version %v: %v, want %s", c.older, got, c.want)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		to, from string
		want     bool
	}{
		{"v0.2.0", "v0.1.0", false},
		{"v0.1.0", "v0.2.0-rc.1", true},
		{"v0.2.0", "v0.2.0", false},
		{"1234567", "v0.2.0", false},
		{"v0.2.0", "1234567", false},
		// What git describe says is after the release.
		{"v0.1.0-507-ge2f0fa4", "v0.1.0", false},
		{"v0.1.0", "v0.1.0-507-ge2f0fa4-dirty", true},
		{"v0.1.0-20-ge2f0fa4", "v0.1.0-100-g1234567", true},
		{"v0.1.0-100-ge2f0fa4", "v0.2.0-rc.1-3-g1234567", true},
		{"v0.1.0-dirty", "v0.1.0", false},
	} {
		if got := older(c.to, c.from); got != c.want {
			t.Errorf("%s is older than %s: %v", c.to, c.from, got)
		}
	}
}

func TestSettled(t *testing.T) {
	now := time.Now()
	well := func(pid int) topic.DaemonHealth { return topic.DaemonHealth{State: topic.Healthy, PID: pid, Beat: now} }
	ill := topic.DaemonHealth{State: topic.Degraded, Message: "no", PID: 2, Beat: now}
	gone := topic.DaemonHealth{State: topic.Stopped, PID: 2, Beat: now}
	before := healths{"pleg": well(1), "gc": well(2)}
	for name, c := range map[string]struct {
		daemon      string
		pid         int
		before, now healths
		want        string
	}{
		"well":                    {"pleg", 11, before, healths{"pleg": well(11), "gc": well(2)}, ""},
		"the old process's words": {"pleg", 11, before, before, "process 11 of kubelot-pleg has not said yet how it is"},
		"ill":                     {"gc", 2, before, healths{"pleg": well(1), "gc": ill}, "kubelot-gc: degraded: no"},
		"another is ill":          {"pleg", 11, before, healths{"pleg": well(11), "gc": ill}, "kubelot-gc: degraded: no"},
		"another says nothing":    {"pleg", 11, before, healths{"pleg": well(11)}, "kubelot-gc: says nothing"},
		"another stopped":         {"pleg", 11, before, healths{"pleg": well(11), "gc": gone}, "kubelot-gc: stopped"},
		"it was ill before":       {"gc", 2, healths{"gc": ill}, healths{"gc": ill}, ""},
		"the bus":                 {"bus", 5, before, before, ""},
		"the bus, others not yet": {"bus", 5, before, healths{"pleg": well(1)}, "kubelot-gc: says nothing"},
		"one process":             {"compact", 7, before, healths{"pleg": well(7), "gc": well(7)}, ""},
		"a new one":               {"resource", 9, before, healths{"pleg": well(1), "gc": well(2), "resource": well(9)}, ""},
		"a new one is ill": {
			"probe", 2, before, healths{"pleg": well(1), "gc": well(2), "probe": ill}, "kubelot-probe: degraded: no",
		},
		"one process, not all": {"compact", 7, before, healths{"pleg": well(7), "gc": well(2)}, "process 7 of kubelot-gc"},
	} {
		got := settled(c.daemon, c.pid, c.before, c.now, now)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// install makes the directory that tools/install.sh makes.
func install(t *testing.T) string {
	t.Helper()
	lib := t.TempDir()
	for _, dir := range []string{"bin", "v1", "v2"} {
		if err := os.Mkdir(filepath.Join(lib, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bus", "gc"} {
		if err := os.Symlink("../v1/kubelot-"+name, filepath.Join(lib, "bin", "kubelot-"+name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lib, "v2", "kubelot-"+name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return lib
}

func TestLinks(t *testing.T) {
	lib := install(t)
	bin := filepath.Join(lib, "bin")
	all, err := links(bin, nil)
	if err != nil || len(all) != 2 || all[1].name != "gc" || all[1].target != "../v1/kubelot-gc" {
		t.Fatalf("%v, %v", all, err)
	}
	if err := os.WriteFile(filepath.Join(bin, "kubelot-file"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, name, want string
	}{
		{bin, "file", "is no link to the executable of a version"},
		{lib, "", "has no links kubelot-<daemon>"},
	} {
		var names []string
		if c.name != "" {
			names = []string{c.name}
		}
		if _, err := links(c.dir, names); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in %s: %v, want %q", c.name, c.dir, err, c.want)
		}
	}
	for range 2 { // what an interrupted move has left is in nobody's way
		if err := os.Symlink("left", all[1].path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := point(all[1].path, "../v2/kubelot-gc"); err != nil {
			t.Fatal(err)
		}
	}
	if target, err := os.Readlink(all[1].path); err != nil || target != "../v2/kubelot-gc" {
		t.Errorf("the link points to %s, %v", target, err)
	}
}

func TestVersionDir(t *testing.T) {
	lib := install(t)
	bin := filepath.Join(lib, "bin")
	v2 := filepath.Join(lib, "v2")
	for _, to := range []string{"v2", v2, filepath.Join(v2, "kubelot-gc")} {
		if got, err := versionDir(bin, to); err != nil || got != v2 {
			t.Errorf("%s is %s, %v", to, got, err)
		}
	}
	for _, to := range []string{"v3", "/no/such"} {
		if got, err := versionDir(bin, to); err == nil {
			t.Errorf("%s is %s", to, got)
		}
	}
	if got := targetFor(bin, filepath.Join(v2, "kubelot-gc")); got != "../v2/kubelot-gc" {
		t.Errorf("below one directory: %s", got)
	}
	if got := targetFor(bin, "/opt/kubelot-gc"); got != "/opt/kubelot-gc" {
		t.Errorf("elsewhere: %s", got)
	}
}

// A daemon goes back to what its process has, also when kubelot install or somebody else has moved the link since.
func TestWayBack(t *testing.T) {
	lib := install(t)
	bin := filepath.Join(lib, "bin")
	for _, name := range []string{"kubelot-all", "kubelot-api"} {
		if err := os.WriteFile(filepath.Join(lib, "v1", name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("kubelot-all", filepath.Join(lib, "v1", "kubelot-gc")); err != nil {
		t.Fatal(err)
	}
	v1, err := filepath.EvalSymlinks(filepath.Join(lib, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	shared := running.Process{PID: 1, Executable: filepath.Join(v1, "kubelot-all")}
	own := running.Process{PID: 1, Executable: filepath.Join(v1, "kubelot-api")}
	elsewhere := running.Process{PID: 1, Executable: "/opt/no/such/kubelot-gc"}
	replaced := shared
	replaced.Replaced = true
	for name, c := range map[string]struct {
		daemon, target string
		process        running.Process
		want           string
	}{
		"the link is where it was":      {"gc", "../v1/kubelot-gc", shared, "../v1/kubelot-gc"},
		"the link was moved":            {"gc", "../v2/kubelot-gc", shared, "../v1/kubelot-gc"},
		"an executable of its own":      {"api", "../v2/kubelot-gc", own, "../v1/kubelot-api"},
		"an executable of another kind": {"gc", "../v2/kubelot-gc", elsewhere, "/opt/no/such/kubelot-gc"},
		"it was replaced":               {"gc", "../v1/kubelot-gc", replaced, ""},
	} {
		path := filepath.Join(bin, prefix+c.daemon)
		if err := point(path, c.target); err != nil {
			t.Fatal(err)
		}
		if got := wayBack(link{c.daemon, path, c.target}, c.process); got != c.want {
			t.Errorf("%s: back to %q, want %q", name, got, c.want)
		}
	}
}

// A daemon is new if other versions run and none of them has it.
func TestNewDaemon(t *testing.T) {
	lib := install(t)
	v1, v2 := filepath.Join(lib, "v1"), filepath.Join(lib, "v2")
	if err := os.WriteFile(filepath.Join(v1, "kubelot-gc"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(dir string) running.Process {
		return running.Process{PID: 1, Executable: filepath.Join(dir, "kubelot-all")}
	}
	for name, c := range map[string]struct {
		daemon string
		crew   processes
		want   bool
	}{
		"the running version has it":         {"gc", processes{"pleg": at(v1)}, false},
		"it hasn't":                          {"bus", processes{"pleg": at(v1)}, true},
		"a daemon was moved before":          {"bus", processes{"pleg": at(v1), "probe": at(v2)}, true},
		"all run the version, it is stopped": {"bus", processes{"pleg": at(v2)}, false},
	} {
		if got := c.crew.without(c.daemon, v2); got != c.want {
			t.Errorf("%s: new is %v", name, got)
		}
	}
}

// An older version may lack a daemon that pods do without, and only then is one stopped: half of a version stops
// nothing.
func TestWhatAVersionMayLack(t *testing.T) {
	lib := install(t)
	bin := filepath.Join(lib, "bin")
	u := &upgrade{Options: Options{BinDir: bin}, dir: filepath.Join(lib, "v2")}
	crew := processes{"pleg": {PID: 1, Executable: filepath.Join(lib, "v1", "kubelot-all")}}
	for name, c := range map[string]struct {
		daemon string
		back   bool
		want   kind
		fails  string
	}{
		"one that is there":                {daemon: "gc", want: fresh},
		"an optional one, on the way on":   {daemon: "resource", fails: "has no kubelot-resource: install the whole version"},
		"an optional one, on the way back": {daemon: "resource", back: true, want: gone},
		"a vital one, on the way back":     {daemon: "pleg", back: true, fails: "has no kubelot-pleg"},
	} {
		m, err := u.moveOf(t.Context(), link{name: c.daemon, path: filepath.Join(bin, prefix+c.daemon)}, crew, c.back)
		switch {
		case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%s: %v, want %q", name, err, c.fails)
		case c.fails == "" && (err != nil || m.kind != c.want):
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// The command line has three links below a prefix. What others have put in place of one stays.
func TestLinksOfTheCommandLine(t *testing.T) {
	prefix := t.TempDir()
	usr, bin := filepath.Join(prefix, "bin"), filepath.Join(prefix, "lib/kubelot/bin")
	for _, dir := range []string{usr, bin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string][2]string{
		filepath.Join(usr, "kubelot"): {"../lib/kubelot/v0.1.0/kubelot", "../lib/kubelot/v0.2.0/kubelot"},
		filepath.Join(bin, "kubelot"): {"../v0.1.0/kubelot", "../v0.2.0/kubelot"},
		filepath.Join(usr, "kubelet"): {"/opt/kubelet", "/opt/kubelet"},
	}
	run := func() {
		t.Helper()
		u := &upgrade{Options: Options{
			BinDir: bin, Command: filepath.Join(usr, "kubelot"), Out: &strings.Builder{},
		}, dir: filepath.Join(prefix, "lib/kubelot/v0.2.0")}
		for path, l := range links {
			_ = os.Remove(path)
			if err := os.Symlink(l[0], path); err != nil {
				t.Fatal(err)
			}
		}
		if err := u.commands(); err != nil {
			t.Fatal(err)
		}
		for path, l := range links {
			if to, err := os.Readlink(path); err != nil || to != l[1] {
				t.Errorf("%s leads to %s, %v; want %s", path, to, err, l[1])
			}
		}
	}
	run()
	links[filepath.Join(usr, "kubelet")] = links[filepath.Join(usr, "kubelot")]
	run()
	if err := os.Remove(filepath.Join(usr, "kubelet")); err != nil {
		t.Fatal(err)
	}
	delete(links, filepath.Join(usr, "kubelet"))
	run()
}

// The report says of each daemon what has become of it, and of an upgrade that ends early why.
func TestReport(t *testing.T) {
	lib := install(t)
	bin := filepath.Join(lib, "bin")
	var out strings.Builder
	u := &upgrade{Options: Options{BinDir: bin, Out: &out}, dir: filepath.Join(lib, "v2"), version: "v2"}
	m := move{
		link: link{name: "gc", path: filepath.Join(bin, prefix+"gc"), target: "../v1/kubelot-gc"}, kind: idle,
		to: "../v2/kubelot-gc",
	}
	if err := u.one(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	want := Step{
		Daemon: "gc", Outcome: Link, From: "../v1/kubelot-gc", To: "../v2/kubelot-gc",
		Text: "kubelot-gc doesn't run; its link is moved",
	}
	if len(u.steps) != 1 || u.steps[0] != want || out.String() != want.Text+"\n" {
		t.Errorf("steps %+v, printed %q", u.steps, &out)
	}
	for k, want := range map[kind]Outcome{moved: Moved, fresh: Started, gone: Stopped, idle: Link} {
		if got := (move{kind: k}).outcome(); got != want {
			t.Errorf("kind %d: %s, want %s", k, got, want)
		}
	}
	report, err := Run(t.Context(), Options{BinDir: bin, To: "v3", Out: &out})
	if err == nil || report.Error != err.Error() || len(report.Steps) != 0 {
		t.Errorf("of a version that isn't there: %+v, %v", report, err)
	}
}
