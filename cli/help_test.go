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
