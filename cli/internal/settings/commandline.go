package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"kubelot.dev/daemon/config"
)

// commandLine is the parsed command line of a daemon.
type commandLine struct {
	flags *config.Flags
	set   *pflag.FlagSet
}

// parse reads flags as a daemon does. lenient leaves out the flags that the daemons don't have in common.
func parse(args []string, lenient bool) (commandLine, error) {
	line := commandLine{flags: &config.Flags{}, set: pflag.NewFlagSet("kubelot", pflag.ContinueOnError)}
	line.set.SetOutput(io.Discard)
	line.set.ParseErrorsAllowlist.UnknownFlags = lenient
	line.flags.Register(line.set)
	if err := line.set.Parse(args); err != nil {
		if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown {
			err = fmt.Errorf("%w: kubelot has no such flag", err)
		}
		return line, err
	}
	return line, nil
}

// nameOf is the name of a flag that was given as --name=value.
func nameOf(arg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
	return name
}

// overlay puts the given flags in the place of those of the same names. A flag for a map or a list that is merely
// repeated would add to the other.
func overlay(args, given []string) []string {
	replaced := map[string]bool{}
	for _, arg := range given {
		replaced[nameOf(arg)] = true
	}
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return replaced[nameOf(arg)] })
	return append(kept, given...)
}

// FlagsOf are the flags in a file of the units, such as /etc/default/kubelot. The error wraps fs.ErrNotExist if there
// is no such file.
func FlagsOf(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("flags of the units: %w", err)
	}
	var args []string
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(strings.TrimSpace(line), "KUBELOT_ARGS=")
		if !found {
			continue
		}
		// systemd takes quotes away when it reads the file, and again when it makes a command line of the value.
		if strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "'") {
			value = strings.Join(splitWords(value), " ")
		}
		args = splitWords(value)
	}
	line, err := parse(args, true)
	if err != nil {
		return nil, fmt.Errorf("flags of the units in %s: %w", path, err)
	}
	return line.flags.Args(), nil
}

// space separates words.
const space = " \t\r\n"

// splitWords splits a text at white space. Quotes hold together what is between them, and a backslash takes the meaning
// of the next character away.
func splitWords(text string) []string {
	var all []string
	for text = strings.TrimLeft(text, space); text != ""; text = strings.TrimLeft(text, space) {
		var word string
		word, text = firstWord(text)
		all = append(all, word)
	}
	return all
}

// firstWord takes the first word off a text.
func firstWord(text string) (word, rest string) {
	var (
		out     strings.Builder
		quote   rune
		escaped bool
	)
	for i, r := range text {
		switch {
		case escaped:
			out.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && strings.ContainsRune(space, r):
			return out.String(), text[i:]
		default:
			out.WriteRune(r)
		}
	}
	return out.String(), ""
}
