package upgrade

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

func TestOrder(t *testing.T) {
	names := []string{"volume", "bus", "api"}
	for _, c := range []struct {
		to, from string
		want     string
	}{
		{"v0.2.0", "v0.1.0", "bus api volume"},
		{"v0.1.0", "v0.2.0-rc.1", "api volume bus"},
		{"v0.2.0", "v0.2.0", "bus api volume"},
		{"1234567", "v0.2.0", "bus api volume"},
	} {
		if got := strings.Join(order(names, older(c.to, c.from)), " "); got != c.want {
			t.Errorf("from %s to %s: %s, want %s", c.from, c.to, got, c.want)
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
		"one process, not all":    {"compact", 7, before, healths{"pleg": well(7), "gc": well(2)}, "process 7 of kubelot-gc"},
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
		{bin, "lease", "there is no " + bin + "/kubelot-lease"},
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
	p := processOf(os.Args[0])
	executable, err := filepath.EvalSymlinks(os.Args[0])
	if err != nil || p.pid != os.Getpid() || p.executable != executable {
		t.Errorf("%+v, %v; want process %d of %s", p, err, os.Getpid(), executable)
	}
	if p := processOf("/no/such"); p.pid != 0 {
		t.Errorf("%+v", p)
	}
	_, err = versionOf(t.Context(), "/bin/true")
	if err == nil || !strings.Contains(err.Error(), "as no daemon of kubelot does") {
		t.Errorf("%v", err)
	}
}
