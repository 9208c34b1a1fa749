package crew

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"kubelot.dev/cli"
)

// A command in a document is copied and run: it must exist, with its flags.
func TestArchCommandsOfDocsExist(t *testing.T) {
	for path, least := range map[string]int{
		"docs/debugging.md": 10, "docs/replay.md": 10, "README.md": 4, "deploy/README.md": 3,
	} {
		commands := commandsOf(read(t, path))
		if len(commands) < least {
			t.Errorf("%s: only %d commands found: %q", path, len(commands), commands)
		}
		for _, command := range commands {
			if err := runnable(command); err != nil {
				t.Errorf("%s: %s: %v", path, command, err)
			}
		}
	}
}

func TestWrongCommandsAreFound(t *testing.T) {
	text := "Run `kubelot pods`, then:\n\n```\nkubelot tap --since 5m | grep x\n    kubelot why POD # why\n" +
		"kubectl get pods\n```\nthe kubelot crew.\n"
	if got := strings.Join(commandsOf(text), "; "); got != "kubelot pods; kubelot tap --since 5m; kubelot why POD" {
		t.Errorf("found %q", got)
	}
	for command, ok := range map[string]bool{
		"kubelot tap --since 5m --topic a --topic b": true, "kubelot gc --dry-run --all": true,
		"kubelot up --compact": true, "kubelot why": true,
		"kubelot logs": false, "kubelot tap --last 5m": false,
		"kubelot pods --wait soon": false, "kubelot why a b": false,
	} {
		if err := runnable(command); (err == nil) != ok {
			t.Errorf("%s: %v", command, err)
		}
	}
}

var documented = regexp.MustCompile("(?m)(?:^ *|`)(kubelot [a-z][^`\n|#]*)")

// commandsOf are the commands in a document: lines of code blocks, and code spans.
func commandsOf(text string) []string {
	var commands []string
	block := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			block = !block
			continue
		}
		for _, m := range documented.FindAllStringSubmatchIndex(line, -1) {
			// Outside of a block a line of prose may begin with the name, too.
			if block || strings.HasPrefix(line, "    ") || line[m[0]] == '`' {
				commands = append(commands, strings.TrimSpace(line[m[2]:m[3]]))
			}
		}
	}
	return commands
}

// runnable is an error where kubelot has no such command, or doesn't take its flags or its arguments.
func runnable(command string) error {
	root := cli.Command(nil, nil)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	c, args, err := root.Find(strings.Fields(command)[1:])
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return nil // the name of a command in a sentence
	}
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}
