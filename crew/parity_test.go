package crew

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/daemon/config"
)

// parity is the one document that says which feature works.
const parity = "docs/parity.md"

// Other documents go on to say that a feature isn't there long after it is. So what they say of that links to the
// feature's line in docs/parity.md, and this test compares.
func TestArchDocsSayWhatParitySays(t *testing.T) {
	features := parseParity(read(t, parity))
	if len(features) < 100 {
		t.Fatalf("only %d features found in %s", len(features), parity)
	}
	for _, doc := range documents(t) {
		// Records and reports tell of their own time. What is generated has its own source.
		if doc == parity || doc == "docs/dataflow.md" || strings.HasPrefix(doc, "docs/adr/0") ||
			strings.HasPrefix(doc, "docs/bench/") {
			continue
		}
		for _, problem := range untrue(read(t, doc), features) {
			t.Errorf("%s: %s", doc, problem)
		}
	}
}

// untrue are the paragraphs that say that something isn't there, and don't link to a line of parity that says so too.
func untrue(text string, features []feature) []string {
	var problems []string
	for paragraph := range strings.SplitSeq(codeBlock.ReplaceAllString(text, ""), "\n\n") {
		paragraph = strings.Join(strings.Fields(paragraph), " ")
		words := lacking.FindString(paragraph)
		if words == "" {
			continue
		}
		named := 0
		for _, m := range link.FindAllStringSubmatch(paragraph, -1) {
			name := strings.Trim(m[1], "`")
			if filepath.Base(m[2]) != filepath.Base(parity) || strings.HasSuffix(name, ".md") {
				continue
			}
			named++
			if problem := lacks(name, features); problem != "" {
				problems = append(problems, problem)
			}
		}
		if named == 0 {
			const text = "%q names no feature: link [feature](%s) with words of its line there, in %.200q"
			problems = append(problems, fmt.Sprintf(text, words, parity, paragraph))
		}
	}
	return problems
}

// lacking are the words for what isn't there.
var lacking = regexp.MustCompile(
	`(?i)\b(not yet|(isn't|aren't|is not|are not|not) (there|supported|implemented)|` +
		`unsupported|unimplemented|there yet|to come)\b`)

// lacks says why a document may not say that the feature isn't there; empty if it may.
func lacks(name string, features []feature) string {
	var states []string
	for _, f := range features {
		if !strings.Contains(strings.ToLower(f.name), strings.ToLower(name)) {
			continue
		}
		for _, state := range []string{"not yet", "partly", "no:"} {
			if strings.HasPrefix(f.state, state) {
				return ""
			}
		}
		states = append(states, f.state)
	}
	if len(states) == 0 {
		return fmt.Sprintf("%s has no line about %q", parity, name)
	}
	return fmt.Sprintf("it says that %q isn't there, and %s says: %s", name, parity, strings.Join(states, "; "))
}

// feature is a line of docs/parity.md.
type feature struct{ name, state string }

func parseParity(text string) []feature {
	var features []feature
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		features = append(features, feature{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
	}
	return features
}

func TestUntrue(t *testing.T) {
	features := []feature{
		{"TLS bootstrap: `--bootstrap-kubeconfig`", "works; static pods run meanwhile"},
		{"CSI, nfs", "not yet"},
		{"swap", "partly: limits"},
	}
	for _, c := range []struct {
		text string
		want string // empty: nothing is untrue
	}{
		{"The node has volumes.\n\nAnd all is well.", ""},
		{"TLS bootstrap isn't there yet: it\nis accepted.", "names no feature"},
		{"[TLS bootstrap](../docs/parity.md) isn't\nthere yet.", "says: works; static pods"},
		{"Not there yet: [CSI](docs/parity.md) volumes, and [swap](docs/parity.md).", ""},
		{"Not there yet: see [docs/parity.md](docs/parity.md).", "names no feature"},
		{"[Devices](docs/parity.md) are not supported.", "no line about"},
		{"```\nNot supported\n```\n", ""},
	} {
		got := strings.Join(untrue(c.text, features), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

// A line of parity is worth as much as the test that shows it.
func TestArchParityNamesTestsThatExist(t *testing.T) {
	tests := declaredTests(t)
	named := regexp.MustCompile("`(Test[A-Z]\\w*)(\\.\\.\\.|/\\w+)?`").FindAllStringSubmatch(read(t, parity), -1)
	if len(named) < 100 {
		t.Fatalf("only %d tests found in %s", len(named), parity)
	}
	for _, m := range named {
		exists := func(name string) bool { return name == m[1] || m[2] == "..." && strings.HasPrefix(name, m[1]) }
		if !slices.ContainsFunc(tests, exists) {
			t.Errorf("%s names %s, which doesn't exist", parity, m[0])
		}
	}
}

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, path := range filesOf(t, "_test.go") {
		names = append(names, declarations(parsed(t, path))...)
	}
	return names
}

// So it is with packages, which may be named without services/, and with the stories of both agents.
func TestArchParityNamesWhatExists(t *testing.T) {
	text := read(t, parity)
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		root, _, _ := strings.Cut(m[1], "/")
		if !reference.MatchString(m[1]) || root == m[1] || strings.Contains(root, ".") || strings.HasPrefix(root, "Test") {
			continue // no path, or one of Kubernetes, or a test
		}
		if missing("..", m[1]) != "" && missing("../services", m[1]) != "" {
			t.Errorf("%s names %s, which doesn't exist", parity, m[0])
		}
	}
	told := storyNames(t)
	for _, list := range storyList.FindAllStringSubmatch(text, -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(list[1], -1) {
			beginning, several := strings.CutSuffix(m[1], "...")
			exists := func(name string) bool { return name == m[1] || several && strings.HasPrefix(name, beginning) }
			if !slices.ContainsFunc(told, exists) {
				t.Errorf("%s names the story %s, which doesn't exist", parity, m[0])
			}
		}
	}
}

var (
	storyList = regexp.MustCompile("(?:story|stories) ((?:`[\\w.]+`(?:, | and )?)+)")
	storyName = regexp.MustCompile(`name: +"(\w+)"`)
)

// storyNames are the names of the stories, and of whatever else is named like one.
func storyNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range filesOf(t, "_test.go") {
		if path.Dir(file) == "test/e2e/parity" {
			for _, m := range storyName.FindAllStringSubmatch(read(t, file), -1) {
				names = append(names, m[1])
			}
		}
	}
	if len(names) < 100 {
		t.Fatalf("only %d stories found", len(names))
	}
	return names
}

// What parity says of the configuration is what a daemon says at its start.
func TestArchParityAgreesWithTheTableOfFields(t *testing.T) {
	const row = "KubeletConfiguration file"
	features := parseParity(read(t, parity))
	i := slices.IndexFunc(features, func(f feature) bool { return strings.HasPrefix(f.name, row) })
	if i < 0 {
		t.Fatalf("%s has no line %q", parity, row)
	}
	for _, field := range config.Fields {
		if field.Level == config.Partly && !strings.Contains(features[i].state, "`"+field.Path+"`") {
			t.Errorf("%s doesn't say what is missing of `%s`", parity, field.Path)
		}
	}
}

// The commands that run one test are copied from CONTRIBUTING.md.
func TestArchContributingNamesTestsThatExist(t *testing.T) {
	tests := declaredTests(t)
	pattern := regexp.MustCompile(`-(?:run|fuzz) '?((?:Test|Fuzz)\w+)`)
	named := pattern.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	if len(named) < 10 {
		t.Fatalf("only %d tests found", len(named))
	}
	for _, m := range named {
		if !slices.ContainsFunc(tests, func(name string) bool { return strings.HasPrefix(name, m[1]) }) {
			t.Errorf("CONTRIBUTING.md runs %s, which doesn't exist", m[1])
		}
	}
}

// A command that names a package fails for the reader when the package has moved.
func TestArchCommandsNamePackagesThatExist(t *testing.T) {
	command := regexp.MustCompile(`go -C (\S+) (?:test|run|build) (\.\S*)`)
	found := 0
	for _, doc := range append([]string{"README.md", "deploy/README.md"}, guides...) {
		for _, m := range command.FindAllStringSubmatch(read(t, doc), -1) {
			found++
			if problem := missing("..", path.Join(m[1], strings.TrimSuffix(m[2], "..."))+"/"); problem != "" {
				t.Errorf("%s: %q: %s", doc, m[0], problem)
			}
		}
	}
	if found < 10 {
		t.Fatalf("only %d commands found", found)
	}
}
