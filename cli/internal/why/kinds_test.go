package why

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

// fewest is how many kinds of stuck pods and nodes the scenarios must show.
const fewest = 211

// scenario is a kind of stuck pod: its facts as YAML, and the answer as a person reads it.
type scenario struct{ title, facts, answer string }

// The files of testdata/kinds have scenarios one after another: a line "=== " with a title, the facts, a line "---",
// and the answer.
func readScenarios(t *testing.T, file string) []scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []scenario
	for part := range strings.SplitSeq("\n"+string(data), "\n=== ") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		title, rest, _ := strings.Cut(part, "\n")
		facts, answer, _ := strings.Cut(rest, "\n---\n")
		list = append(list, scenario{title, strings.TrimSuffix(facts, "\n---"), strings.TrimSpace(answer)})
	}
	return list
}

func writeScenarios(t *testing.T, file string, list []scenario) {
	t.Helper()
	var out strings.Builder
	for _, s := range list {
		fmt.Fprintf(&out, "=== %s\n%s\n---\n%s\n\n", s.title, s.facts, s.answer)
	}
	if err := os.WriteFile(file, []byte(strings.TrimSuffix(out.String(), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// told is a line of docs/why.md.
type told struct{ kind, sentence string }

// told is the answer where the facts hold.
func (s scenario) told(t *testing.T) (told, string) {
	t.Helper()
	f := parseFacts(t, s.facts)
	w := f.snapshot(t)
	var causes []Cause
	var text, sentence string
	if f.Ask == "node" {
		a := ExplainNode(w, noon)
		causes, sentence, text = a.Causes, a.Sentence, NodeText(a, noon, paint.Painter{})
	} else {
		ref := topic.Ref{Namespace: "default", Name: "web", UID: "u1"}
		if f.Ask != "" {
			var err error
			if ref, err = Find(w, f.Ask); err != nil {
				return told{}, "error: " + err.Error()
			}
		}
		a := Explain(w, ref, noon)
		causes, sentence, text = a.Causes, a.Sentence, Text(a, noon, paint.Painter{})
	}
	checkAnswer(t, s.title, causes, text)
	kind := ""
	if len(causes) > 0 {
		kind = causes[0].Kind
	}
	return told{kind, sentence}, strings.TrimSpace(text)
}

// checkAnswer holds what is true of each answer.
func checkAnswer(t *testing.T, title string, causes []Cause, text string) {
	t.Helper()
	for _, c := range causes {
		if c.Kind == "" || c.Sentence == "" || c.What == "" {
			t.Errorf("%s: a cause lacks a kind, a sentence or an object: %+v", title, c)
		}
		for _, part := range []string{c.Sentence, c.Advice, c.Waits} {
			if strings.Contains(part, "{") && !strings.Contains(part, `'{"`) {
				t.Errorf("%s: a name isn't filled in: %s", title, part)
			}
		}
		if c.Advice == "" && c.Waits == "" {
			t.Errorf("%s: nothing to do and nothing to wait for: %+v", title, c)
		}
	}
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "[as above]") && len(line) > 60 && strings.Count(text, line) > 1 {
			t.Errorf("%s: a long line twice: %s", title, line)
		}
	}
}

func TestKinds(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "kinds", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var lines []told
	kinds := map[string]bool{}
	for _, file := range files {
		list := readScenarios(t, file)
		for i, s := range list {
			line, answer := s.told(t)
			lines, kinds[line.kind] = append(lines, line), true
			if *rewrite {
				list[i].answer = answer
				continue
			}
			if answer != s.answer {
				t.Errorf("%s: %s: the answer differs (go test -rewrite, then read the diff):\n%s", file, s.title, answer)
			}
		}
		if *rewrite {
			writeScenarios(t, file, list)
		}
	}
	if len(kinds) < fewest {
		t.Errorf("%d kinds, want at least %d", len(kinds), fewest)
	}
	checkTable(t, lines)
}

// table is docs/why.md, which the test writes with -rewrite.
var table = filepath.Join("..", "..", "..", "docs", "why.md")

func checkTable(t *testing.T, lines []told) {
	t.Helper()
	slices.SortStableFunc(lines, func(a, b told) int { return strings.Compare(a.kind, b.kind) })
	var out strings.Builder
	out.WriteString(head)
	for _, l := range lines {
		if l.kind == "" {
			continue
		}
		fmt.Fprintf(&out, "%s: %s.\n", l.kind, sentence(l.sentence))
	}
	out.WriteString("```\n")
	if *rewrite {
		if err := os.WriteFile(table, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != out.String() {
		t.Errorf("%s is out of date: go test -rewrite ./internal/why in module cli writes it", table)
	}
}

const head = "# What `kubelot why` says\n\n" +
	"<!-- Written by the tests of cli/internal/why from testdata/kinds: go test -rewrite ./internal/why -->\n\n" +
	"`kubelot why POD` and `kubelot why node` begin with one sentence. Here is one for each kind of problem that\n" +
	"they know; the kind is the field `causes[].kind` of `-o json`. Below the sentence stand what kubelot waits for,\n" +
	"until when, what to do, what was reported, and what has happened so far. Of a problem that no rule knows they\n" +
	"show what was reported.\n\n" +
	"```text\n"
