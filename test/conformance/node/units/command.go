package units

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// verb is what a command does to the unit.
type verb string

const (
	run     verb = "run"
	list    verb = "list-units"
	start   verb = "start"
	stop    verb = "stop"
	kill    verb = "kill"
	restart verb = "restart"
	reset   verb = "reset-failed"
	version verb = "--version"
)

// command is a call of systemctl or systemd-run.
type command struct {
	verb verb
	unit string // without .service; of list, a pattern
	// running is for list: leave out a unit that doesn't run.
	running bool
	// args are what run starts.
	args []string
}

// parse reads a command line, the program's name first.
func parse(argv []string) (command, error) {
	if len(argv) == 0 {
		return command{}, fmt.Errorf("no command")
	}
	if slices.Contains(argv[1:min(2, len(argv))], string(version)) {
		return command{verb: version}, nil
	}
	switch name := filepath.Base(argv[0]); name {
	case "systemd-run":
		return parseRun(argv[1:])
	case "systemctl":
		return parseControl(argv[1:])
	default:
		return command{}, fmt.Errorf("%s is neither systemctl nor systemd-run", name)
	}
}

// parseRun reads systemd-run's options, as far as the suite uses them, and what is to be run. Resources and logs are
// the owner's affair, so that all options but the unit's name mean nothing here.
func parseRun(args []string) (command, error) {
	c := command{verb: run}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		if option == "-p" && len(args) > 0 {
			args = args[1:]
		}
		if name, ok := strings.CutPrefix(option, "--unit="); ok {
			c.unit = unitName(name)
		}
	}
	if c.unit == "" || len(args) == 0 {
		return command{}, fmt.Errorf("systemd-run needs --unit=NAME and a program")
	}
	for _, arg := range args {
		c.args = append(c.args, unescape(arg))
	}
	return c, nil
}

// unescape undoes what the suite does for systemd, which expands % and $ in the command line of a unit.
func unescape(arg string) string {
	return strings.NewReplacer("%%", "%", "$$", "$").Replace(arg)
}

func parseControl(args []string) (command, error) {
	var words []string
	c := command{}
	for _, arg := range args {
		switch {
		case arg == "--state=running":
			c.running = true
		case strings.HasPrefix(arg, "-"):
			return command{}, fmt.Errorf("systemctl %s isn't known here", arg)
		default:
			words = append(words, arg)
		}
	}
	if len(words) != 2 {
		return command{}, fmt.Errorf("systemctl needs a verb and one unit, not %q", words)
	}
	c.verb, c.unit = verb(words[0]), unitName(words[1])
	if !slices.Contains([]verb{list, start, stop, kill, restart, reset}, c.verb) {
		return command{}, fmt.Errorf("systemctl %s isn't known here", c.verb)
	}
	return c, nil
}

func unitName(name string) string { return strings.TrimSuffix(name, ".service") }
