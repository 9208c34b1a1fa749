package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// maxColumns is how long a line of a help text may be, in characters.
const maxColumns = 120

// Terminals break long lines in the middle of a word.
func TestHelpTextsHaveShortLines(t *testing.T) {
	lines := 0
	for _, root := range []*cobra.Command{Command(nil, nil), kubeletCommand(nil, nil)} {
		for _, problem := range longHelp(root, &lines) {
			t.Error(problem)
		}
	}
	if lines < 50 {
		t.Errorf("only %d lines of help texts found", lines)
	}
}

// longHelp names the lines of a command's texts, and of its subcommands', that are too long. It counts all lines.
func longHelp(c *cobra.Command, count *int) []string {
	var problems []string
	for line := range strings.SplitSeq(strings.Join([]string{c.Short, c.Long, c.Example}, "\n"), "\n") {
		*count++
		if utf8.RuneCountInString(line) > maxColumns {
			problems = append(problems, c.CommandPath()+": "+line)
		}
	}
	for _, sub := range c.Commands() {
		problems = append(problems, longHelp(sub, count)...)
	}
	return problems
}

func TestLongHelp(t *testing.T) {
	long := strings.Repeat("x", maxColumns+1)
	root := &cobra.Command{Use: "root", Short: long[1:], Long: "a\n" + long}
	root.AddCommand(&cobra.Command{Use: "sub", Example: long})
	var lines int
	if got := longHelp(root, &lines); len(got) != 2 || lines != 7 {
		t.Errorf("found %q in %d lines, want two lines of 7", got, lines)
	}
}

// withoutJSON are the commands that have no -o json, each with the reason.
var withoutJSON = map[string]string{
	"kubelot up":                  "it runs until it is stopped, and what it prints are the daemons' logs",
	"kubelot down":                "it tells what it removes; afterwards there is nothing, and the exit code says so",
	"kubelot handback":            "it becomes the kubelet or starts its unit; the exit code is the answer",
	"kubelot install":             "it tells an administrator the next steps; the exit code is the answer",
	"kubelot uninstall":           "nothing is left that could be described; the exit code is the answer",
	"kubelot shutdown containers": "a unit runs it when the machine stops, and its words are for the journal",
	"kubelet":                     "it is the kubelet, whose flags it has",
}

// Scripts read JSON and exit codes, so each command has both, but for those that say why not.
func TestCommandsForScripts(t *testing.T) {
	seen := map[string]bool{}
	for _, root := range []*cobra.Command{Command(nil, nil), kubeletCommand(nil, nil)} {
		for _, problem := range unscriptable(root, seen) {
			t.Error(problem)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d commands found", len(seen))
	}
	for name, reason := range withoutJSON {
		if !seen[name] || reason == "" {
			t.Errorf("%s: there is no such command, or no reason", name)
		}
	}
}

// unscriptable says which commands lack -o json, a description of their exit codes or an example. A command that only
// has subcommands is none. Those that were looked at are in seen.
func unscriptable(c *cobra.Command, seen map[string]bool) []string {
	var problems []string
	for _, sub := range c.Commands() {
		problems = append(problems, unscriptable(sub, seen)...)
	}
	if !c.Runnable() {
		return problems
	}
	name := c.CommandPath()
	seen[name] = true
	output := c.Flags().Lookup("output")
	json := output != nil && output.Shorthand == "o" && strings.Contains(output.Usage, "json")
	if _, excused := withoutJSON[name]; json == excused {
		problems = append(problems, name+": -o json, or the reason why there is none, and not both")
	}
	if !strings.Contains(c.Long, "Exit codes: 0") {
		problems = append(problems, name+`: the help has no "Exit codes: 0 ..."`)
	}
	if c.Example == "" {
		problems = append(problems, name+": the help has no example")
	}
	return problems
}

func TestUnscriptable(t *testing.T) {
	root := &cobra.Command{Use: "root"}
	nothing := func(*cobra.Command, []string) {}
	bare := &cobra.Command{Use: "bare", Run: nothing}
	good := &cobra.Command{Use: "good", Run: nothing, Long: "Exit codes: 0 always.", Example: "x"}
	for c, usage := range map[*cobra.Command]string{good: "text or json", bare: "text"} {
		c.Flags().StringP("output", "o", "text", usage)
		root.AddCommand(c)
	}
	seen := map[string]bool{}
	if got := unscriptable(root, seen); len(got) != 3 || len(seen) != 2 {
		t.Errorf("found %q in %v, want that one has neither JSON, codes nor an example", got, seen)
	}
}
