package main

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestPreviousRelease(t *testing.T) {
	const releases = `# The releases.
v0.1.0 d6cce44b 2026-11-22
v0.2.0 1a2b3c4 2026-12-01
v0.1.1 2b3c4d5 2026-12-02
v0.3.0-rc.1 3c4d5e6 2026-12-20
v0.10.0 4d5e6f7 2027-01-01
`
	for version, want := range map[string]string{
		"v0.1.0":             "",
		"v0.0.9":             "",
		"v0.1.0-5-g1a2b3c4":  "0.1.0",
		"v0.1.0-dirty":       "0.1.0",
		"v0.1.1":             "0.1.0",
		"v0.2.0~rc.1":        "0.1.1",
		"v0.2.0":             "0.1.1",
		"v0.2.0-1-g1a2b3c4":  "0.2.0",
		"v0.9.0":             "0.2.0",
		"v0.10.0":            "0.2.0",
		"v99.0.0":            "0.10.0",
		"1a2b3c4":            "",
		"devel-dirty":        "",
		"v0.10.0-7-g1-dirty": "0.10.0",
	} {
		if got, err := previousOf(releases, version); got != want || err != nil {
			t.Errorf("before %s there is %q, %v, want %q", version, got, err, want)
		}
	}
	if _, err := previousRelease("../..", "v99.0.0"); err != nil {
		t.Error(err)
	}
	if _, err := previousRelease(t.TempDir(), "v99.0.0"); err == nil {
		t.Error("a source without a list of releases is no error")
	}
}

// A daemon's package goes with the previous release's, and the package of the crew brings all that there is of its own
// version. No relation has apt or dnf remove one of the packages.
func TestVersionsOfRelations(t *testing.T) {
	const version = "0.2.0+5.g1a2b3c4"
	all, err := list(version, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*pack{}
	for _, p := range all {
		byName[p.name] = p
	}
	for name, want := range map[string][]relation{
		"kubelot-bus":    {{"kubelot-common (>= 0.1.0)", "kubelot-common >= 0.1.0"}},
		"kubelot-common": {{"kubelot-cli (>= " + version + ")", "kubelot-cli >= " + version}},
		"kubelot-cli":    nil,
		"kubelot-pleg": {
			{"kubelot-common (>= 0.1.0)", "kubelot-common >= 0.1.0"}, {"kubelot-bus (>= 0.1.0)", "kubelot-bus >= 0.1.0"},
		},
		"kubelot-resource": {
			{"kubelot-common (>= 0.1.0+1)", "kubelot-common >= 0.1.0+1"},
			{"kubelot-bus (>= 0.1.0+1)", "kubelot-bus >= 0.1.0+1"},
		},
		"kubelot-compact": {
			{"kubelot-common (>= 0.1.0)", "kubelot-common >= 0.1.0"},
			{"kubelot-cli (>= 0.1.0)", "kubelot-cli >= 0.1.0"},
			{"mount", "util-linux"},
		},
		"kubelot-kubelet": {
			{"kubelot-common (>= 0.1.0)", "kubelot-common >= 0.1.0"},
			{"kubelot-cli (>= " + version + ")", "kubelot-cli >= " + version},
			{"kubelot | kubelot-crew", "kubelot-crew"},
			{"systemd (>= 249)", "systemd >= 249"},
		},
	} {
		if got := byName[name].relations.depends; !slices.Equal(got, want) {
			t.Errorf("%s depends on %q, want %q", name, got, want)
		}
	}
	for name, p := range byName {
		pin := relation{name + " (>= " + version + ")", name + " >= " + version}
		pinned := slices.Contains(byName["kubelot"].relations.depends, pin)
		if other := p.part == "" && name != "kubelot-cli" || p.kind == "kubelet" || p.dir != ""; pinned == other {
			t.Errorf("kubelot brings %s of its own version: %v", name, pinned)
		}
		for _, r := range p.relations.conflicts {
			if strings.Contains(r.deb+r.rpm, "<") {
				t.Errorf("%s conflicts with %q", name, r)
			}
		}
	}
}

// A daemon that has got rights on the bus since the previous release needs a bus that gives them. docs/dataflow.md has
// the rights, today's and in the release's commit.
func TestWhoAsksMoreOfTheBus(t *testing.T) {
	const root = "../.."
	list, err := os.ReadFile(root + "/deploy/releases.txt")
	if err != nil {
		t.Fatal(err)
	}
	previous, err := previousOf(string(list), "v99.0.0")
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(list), "\nv"+previous+" ")
	if !found {
		t.Fatalf("there is no release %q", previous)
	}
	commit, _, _ := strings.Cut(line, " ")
	then, err := exec.Command("git", "-C", root, "show", commit+":docs/dataflow.md").Output()
	if err != nil {
		t.Skipf("the checkout lacks the release's commit: %v", err)
	}
	now, err := os.ReadFile(root + "/docs/dataflow.md")
	if err != nil {
		t.Fatal(err)
	}
	allowed, more := rights(string(then)), map[string]bool{}
	for right := range rights(string(now)) {
		if daemon, _, _ := strings.Cut(right, " "); !allowed[right] && summaries[daemon] != "" {
			more[daemon] = true
		}
	}
	if got := slices.Sorted(maps.Keys(more)); !slices.Equal(got, askMore[previous]) {
		t.Errorf("more than the bus of %s allows is asked by %q, and askMore has %q", previous, got, askMore[previous])
	}
}

// rights are who does what on which topic, by the tables of docs/dataflow.md. What each daemon may do on a topic of its
// own isn't among them.
func rights(page string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		topic := strings.Trim(cells[1], " `")
		all[strings.TrimSpace(cells[2])+" has "+topic] = true
		for user := range strings.SplitSeq(cells[3], ",") {
			all[strings.TrimSpace(user)+" uses "+topic] = true
		}
	}
	return all
}

// Before the first release there is no version to ask for.
func TestOldestFor(t *testing.T) {
	for _, c := range [][3]string{
		{"lease", "", ""},
		{"resource", "", ""},
		{"resource", "0.1.0", "0.1.0+1"},
		{"resource", "0.0.1", "0.0.1"},
		{"pleg", "0.1.0", "0.1.0"},
	} {
		if got := oldestFor(c[0], c[1]); got != c[2] {
			t.Errorf("%s after release %q needs %q, want %q", c[0], c[1], got, c[2])
		}
	}
	if got := atLeast("", "kubelot-bus"); !slices.Equal(got, both("kubelot-bus")) {
		t.Errorf("of any version: %q", got)
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("there is no dpkg here")
	}
	// A package has a revision, which no relation has.
	for _, version := range []string{"v0.1.0-1-g1a2b3c4", "v0.1.0-507-g1a2b3c4-dirty", "v0.1.1", "v0.2.0~rc.1"} {
		built, err := packageVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		for _, oldest := range []string{"0.1.0", "0.1.0+1"} {
			if err := exec.Command("dpkg", "--compare-versions", built+"-1", "ge", oldest).Run(); err != nil {
				t.Errorf("%s isn't at least %s", built, oldest)
			}
		}
	}
	if err := exec.Command("dpkg", "--compare-versions", "0.1.0-1", "ge", "0.1.0+1").Run(); err == nil {
		t.Error("the release itself has a daemon that came after it")
	}
}
