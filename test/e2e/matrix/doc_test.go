package matrix

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/deploy"
)

// results is a file of results (RESULTS) of which docs/matrix.md is written anew. A cell that it lacks stays as it is.
var results = flag.String("results", "", "results to write into docs/matrix.md")

const (
	docFile = "../../../docs/matrix.md"
	begin   = "<!-- cells: written by go test ./e2e/matrix -run TestDocument -results FILE -->"
	end     = "<!-- end of cells -->"
)

// TestDocument holds that docs/matrix.md has every cell, and that the tests that it names exist. With -results it
// writes the table first.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), begin)
	table, tail, found2 := strings.Cut(rest, end)
	if !found || !found2 {
		t.Fatalf("%s lacks the marks %q and %q", docFile, begin, end)
	}
	cells := parseTable(table)
	if *results != "" {
		for key, shown := range readResults(t, *results) {
			cells[key] = shown
		}
		table = render(cells)
		if err := os.WriteFile(docFile, []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if table != render(cells) {
		t.Errorf("the table of %s is not as it is written; write it anew with -results", docFile)
	}
	for _, part := range parts {
		for _, a := range actions {
			if cells[key(part, a)] == "" {
				t.Errorf("%s has no cell of %s, %s", docFile, part, a)
			}
		}
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(head+tail, -1) {
		find := exec.CommandContext(t.Context(), "grep", "-rqE", "--include=*_test.go", "^func "+name[1]+"\\(",
			filepath.Join("..", "..", ".."))
		if find.Run() != nil {
			t.Errorf("%s names %s, which doesn't exist", docFile, name[1])
		}
	}
}

// The table has every daemon that there is.
func TestAllDaemonsAreInTheTable(t *testing.T) {
	all, err := deploy.Daemons()
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(daemons)), slices.Sorted(slices.Values(all))) {
		t.Errorf("the table has %v, and there are %v, %v", daemons, all, err)
	}
}

// A long run sees a storm although the API server forgets Events meanwhile.
func TestForgottenEventsHideNone(t *testing.T) {
	before := events{"old": {count: 40}, "again": {count: 2}}
	if n, _ := (events{"again": {count: 5}, "new": {count: 30}}).more(before); n != 33 {
		t.Errorf("there are %d more Events, want 33", n)
	}
}

func key(part string, a action) string { return part + "/" + string(a) }

// readResults are the last results of each cell.
func readResults(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	shown := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var c cell
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		shown[key(c.Part, c.Action)] = c.show()
	}
	return shown
}

// show is what the document says of the cell.
func (c cell) show() string {
	if c.Converged == 0 {
		return "no: " + c.Note
	}
	text := fmt.Sprintf("%.1f s", time.Duration(c.Converged*int64(time.Millisecond)).Seconds())
	if !c.Full {
		text += " (short)"
	}
	if c.Note != "" {
		text += "; " + c.Note
	}
	return text
}

func render(cells map[string]string) string {
	var text strings.Builder
	text.WriteString("\n| part |")
	for _, a := range actions {
		text.WriteString(" " + string(a) + " |")
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(actions)) + "\n")
	for _, part := range parts {
		text.WriteString("| " + part + " |")
		for _, a := range actions {
			text.WriteString(" " + cells[key(part, a)] + " |")
		}
		text.WriteString("\n")
	}
	return text.String()
}

func parseTable(table string) map[string]string {
	cells := map[string]string{}
	for line := range strings.Lines(table) {
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(fields) != len(actions)+1 {
			continue
		}
		for i, a := range actions {
			cells[key(strings.TrimSpace(fields[0]), a)] = strings.TrimSpace(fields[i+1])
		}
	}
	return cells
}
