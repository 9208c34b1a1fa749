package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// tourPage is the transcript. UPDATE=1 writes what the commands answer now.
const tourPage = "docs/tour.md"

// TestTools looks at a crew that nothing else uses, so that its tools say the same each time: the tour, the doctor of
// daemons that are stopped, and the alerts that they cause.
func TestTools(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	if err := own.StartNode(t.Context(), node.Kubelot); err != nil {
		t.Fatal(err)
	}
	t.Run("tour", func(t *testing.T) { tour(t, own) })
	t.Run("doctor", func(t *testing.T) { doctorFindsStopped(t, own) })
	t.Run("alerts", func(t *testing.T) { alertsFire(t, own) })
}

// tour runs the commands of docs/tour.md in their order and compares what they say with the page, without what differs
// each time: times, identities, addresses, figures.
func tour(t *testing.T, own *kit.Bed) {
	path := filepath.Join(own.Tools.Root, tourPage)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := parseTour(string(text))
	if len(page.steps) < 10 {
		t.Fatalf("%d commands found on %s", len(page.steps), tourPage)
	}
	if err := own.Tools.EnsurePackages(t.Context(), []string{"jq"}); err != nil {
		t.Fatal(err)
	}
	shell := newShell(t, own)
	if err := os.WriteFile(filepath.Join(shell.dir, "tour.yaml"), []byte(page.manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	update := os.Getenv("UPDATE") != ""
	for i := range page.steps {
		step := &page.steps[i]
		var differs string
		answer := shell.until(t.Context(), step.command, func(answer string) bool {
			differs = compareTour(step.command, step.output, answer)
			return update || differs == ""
		})
		if update {
			step.output = answer
		} else if differs != "" {
			t.Errorf("$ %s\n%s\nthe page has:\n%s\nit answers:\n%s", step.command, differs, step.output, answer)
		}
	}
	if update {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tourStep is a command of the page, and what it answers.
type tourStep struct{ command, output string }

// tourText is the page: the text before each step, the steps, and the text after the last one.
type tourText struct {
	before   []string
	steps    []tourStep
	manifest string // of the only block of YAML
}

const (
	prompt   = "$ "
	tourOpen = "```console\n"
	yamlOpen = "```yaml\n"
	fence    = "```\n"
)

// parseTour takes the page apart. A command ends at the end of its line, unless that is a backslash.
func parseTour(text string) tourText {
	var page tourText
	var before strings.Builder
	block := ""
	command := false
	for line := range strings.Lines(text) {
		switch {
		case block == "" && (line == tourOpen || line == yamlOpen):
			block = line
		case line == fence:
			block = ""
		case block == yamlOpen:
			page.manifest += line
		case block == tourOpen && (command || strings.HasPrefix(line, prompt)):
			if !command {
				page.before = append(page.before, before.String())
				before.Reset()
				page.steps = append(page.steps, tourStep{})
			}
			page.steps[len(page.steps)-1].command += strings.TrimPrefix(line, prompt)
			command = strings.HasSuffix(line, "\\\n")
			continue
		case block == tourOpen && len(page.steps) > 0:
			page.steps[len(page.steps)-1].output += line
			continue
		}
		before.WriteString(line)
	}
	page.before = append(page.before, before.String())
	return page
}

// String is the page's text.
func (p tourText) String() string {
	var text strings.Builder
	for i, step := range p.steps {
		text.WriteString(p.before[i] + prompt + step.command + step.output)
	}
	return text.String() + p.before[len(p.steps)]
}

// tourShell runs commands as a person on the node does.
type tourShell struct {
	dir   string
	env   []string
	names *strings.Replacer // of the bed's places by those of a node
	// file was made last, by the command maker; empty before the first one.
	file, maker string
}

// newShell has kubelot and kubectl in its path, which find the bed by themselves.
func newShell(t *testing.T, own *kit.Bed) *tourShell {
	t.Helper()
	s := &tourShell{dir: t.TempDir()}
	programs, run := t.TempDir(), own.Node.RunDir()
	// A node that runs would have its configuration compared, which here is the bed's.
	wrapper := fmt.Sprintf("#!/bin/sh\ncase $1 in replay | version | config) exec %[1]s \"$@\" ;; esac\n"+
		"exec %[1]s \"$@\" --run-dir=%[2]s\n", own.Program("kubelot"), run)
	if err := os.WriteFile(filepath.Join(programs, "kubelot"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own.Tools.Path("kubectl"), filepath.Join(programs, "kubectl")); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "NO_COLOR=1",
		"KUBECONFIG="+own.ControlPlane.AdminKubeconfig())
	s.names = strings.NewReplacer(run, "/run/kubelot", own.Bed.CRISocket(), "/run/containerd/containerd.sock",
		own.Node.ConfigFile(), "/var/lib/kubelet/config.yaml", own.Node.RootDir, "/var/lib/kubelet",
		own.Node.PodLogs, "/var/log/pods", own.Node.ManifestDir, "/etc/kubernetes/manifests", own.Bed.Path(""), "/srv/bed",
		s.dir, "/root", own.RuntimeName(t), "containerd")
	return s
}

// run is what the command writes, and its exit code where that isn't 0.
func (s *tourShell) run(ctx context.Context, command string) string {
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		text += fmt.Sprintf("[%v]\n", err)
	}
	return s.names.Replace(text)
}

// makes finds the file that a command of kubelot makes of what the node knows at the time.
var makes = regexp.MustCompile(`kubelot (?:tap .*--record|bundle .*--file) (\S+)`)

// until runs the command until its answer is as expected: what one daemon says takes a moment until all know it. A
// command that reads a file of an earlier command runs after that command has written the file again. Other commands
// that write something run once.
func (s *tourShell) until(ctx context.Context, command string, ok func(string) bool) string {
	if made := makes.FindStringSubmatch(command); made != nil {
		s.file, s.maker = made[1], command
	}
	looks := strings.Contains(command, "kubelot ") || strings.HasPrefix(command, "tar ")
	deadline := time.Now().Add(kit.Patience)
	for {
		answer := s.run(ctx, command)
		if ok(answer) || !looks || time.Now().After(deadline) {
			return answer
		}
		time.Sleep(200 * time.Millisecond)
		if s.file == "" || !strings.Contains(command, s.file) {
			continue
		}
		_ = os.Remove(filepath.Join(s.dir, s.file)) // or else it isn't written
		if command != s.maker {
			s.run(ctx, s.maker)
		}
	}
}

// masks hide what differs each time, in their order.
var masks = []struct {
	is *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`, \S+, pid \d+`), ", VERSION, pid PID"},
	{regexp.MustCompile(`\(\d+ times?, last [^)]*\)`), ""}, // how often something failed depends on the machine
	{regexp.MustCompile(`\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?)?(?:Z| UTC)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(?:\.\d+)?(?: UTC)?`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\b(?:sha256:)?[0-9a-f]{12,64}\b`), "ID"},
	{regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+|/\d+)?\b`), "ADDRESS"},
	{regexp.MustCompile(`\bv?\d+\.\d+\.\d+[\w.+~-]*`), "VERSION"},
	{regexp.MustCompile(`; asleep: .*`), ""},                   // a minute after the start
	{regexp.MustCompile(`cgroups: version [12].*`), "cgroups"}, // the machine's
	{regexp.MustCompile(`[+-]?\b(?:\d+(?:\.\d+)?(?:ns|µs|ms|s|m|h|d))+\b`), "DURATION"},
	{regexp.MustCompile(`\b\d[\d.,]*(?:e[+-]\d+)?(?: ?[kKMGT]i?B?\b)?%?`), "FIGURE"},
	{regexp.MustCompile(`\s+`), " "}, // columns are as wide as what is in them
}

func mask(line string) string {
	for _, m := range masks {
		line = m.is.ReplaceAllString(line, m.by)
	}
	return strings.TrimSpace(line)
}

// inBetween is what a busy machine says in between, and what is said only at first.
var inBetween = regexp.MustCompile(`\.\.\.$|^Nothing is removed now`)

// anyOrder are the commands that show what happened: in which order, and how often, depends on the machine.
var anyOrder = regexp.MustCompile(`kubelot (?:tap|replay|why)`)

// compareTour says how an answer differs from the page. Of what happened on the bus each kind must be there.
func compareTour(command, want, got string) string {
	masked := func(text string) []string {
		var lines []string
		for line := range strings.Lines(text) {
			if line = mask(line); strings.Contains(command, "kubelot top") {
				line, _, _ = strings.Cut(line, " ") // whose line it is; the rest is figures, and what happens just now
			}
			if line != "" && !inBetween.MatchString(line) {
				lines = append(lines, line)
			}
		}
		if anyOrder.MatchString(command) {
			slices.Sort(lines)
			lines = slices.Compact(lines)
		}
		return lines
	}
	a, b := masked(want), masked(got)
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return "a line is new: " + b[i]
		case i >= len(b):
			return "a line is missing: " + a[i]
		case a[i] != b[i]:
			return "a line differs:\n  " + a[i] + "\n  " + b[i]
		}
	}
	return ""
}

func TestTourText(t *testing.T) {
	t.Parallel()
	text := "# T\n\n```yaml\na: b\n```\n\n```console\n$ one \\\n  more\nout\n$ two\n```\n\nend\n```\n$ no\n```\n"
	page := parseTour(text)
	want := []tourStep{{"one \\\n  more\n", "out\n"}, {"two\n", ""}}
	if !slices.Equal(page.steps, want) || page.manifest != "a: b\n" {
		t.Errorf("%q, manifest %q", page.steps, page.manifest)
	}
	if page.String() != text {
		t.Errorf("written again it is %q", page.String())
	}
}

func TestCompareTour(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command, want, got string
		same               bool
	}{
		"equal":        {"x", "a\n", "a\n", true},
		"another word": {"x", "a ready\n", "a waits\n", false},
		"more":         {"x", "a\n", "a\nb\n", false},
		"less":         {"x", "a\nb\n", "a\n", false},
		"times":        {"x", "at 12:00:01 for 1m2s\n", "at 2026-11-20T12:00:00.5Z for 3s\n", true},
		"ids": {
			"x", "uid 0b8d7c1e-1111-2222-3333-444455556666\n", "uid 1b8d7c1e-0111-2222-3333-444455556666\n", true,
		},
		"addresses":      {"x", "at 10.0.0.1:4222 v1.2.3\n", "at 10.1.2.3:1 v1.2.4-5-gabc\n", true},
		"figures":        {"x", "12 MiB in 3 files, 4.5 %\n", "1.1 GiB in 30 files, 40 %\n", true},
		"columns":        {"x", "a   b\n", "a b\n", true},
		"often":          {"x", "failed (2 times, last 2s ago)\n", "failed\n", true},
		"order":          {"x", "a\nb\n", "b\na\n", false},
		"order of a tap": {"timeout 3 kubelot tap", "a\nb\nb\n", "b\na\n", true},
		"lines of top":   {"kubelot top --once", "a idle\nb busy\n", "a 3.4%\nb idle\n", true},
		"a line of top":  {"kubelot top --once", "a idle\nb idle\n", "a idle\nc idle\n", false},
		"kind in a tap":  {"kubelot replay", "a\nb\n", "a\nc\n", false},
		"passing":        {"x", "a\n", "a\npull image ...\n", true},
	} {
		if differs := compareTour(c.command, c.want, c.got); (differs == "") != c.same {
			t.Errorf("%s: %q", name, differs)
		}
	}
}
