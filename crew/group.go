package crew

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"kubelot.dev/daemon"
)

// Compact is the name of the executable that has every daemon and runs them in one process.
const Compact = "kubelot-compact"

// RunGroup is the subcommand that runs several daemons as one process.
const RunGroup = "run"

// MainGroup is the main function of an executable that runs groups of these daemons: its command line is "run", the
// list of daemons, and their flags. It returns only where that names no group.
func MainGroup(program string, all []daemon.Spec) error {
	args := os.Args[1:]
	if len(args) == 0 || args[0] != RunGroup {
		return fmt.Errorf("say which daemons: %s %s %s [flags]", program, RunGroup, strings.Join(names(all), ","))
	}
	if len(args) == 1 {
		args = append(args, "")
	}
	group, err := groupOf(all, args[1])
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	daemon.MainGroup(program, group, args[2:])
	return nil
}

// groupOf picks daemons by a list of names with commas between, in the order of their start.
func groupOf(all []daemon.Spec, list string) ([]daemon.Spec, error) {
	wanted := strings.Split(list, ",")
	for i, name := range wanted {
		name = strings.TrimPrefix(name, CLI+"-")
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("there is no daemon %q, only: %s", name, strings.Join(names(all), ","))
		}
		if slices.Contains(wanted[:i], name) {
			return nil, fmt.Errorf("daemon %s is named twice", name)
		}
		wanted[i] = name
	}
	var group []daemon.Spec
	for _, spec := range all {
		if slices.Contains(wanted, spec.Name) {
			group = append(group, spec)
		}
	}
	return group, nil
}

func names(all []daemon.Spec) []string {
	var list []string
	for _, spec := range all {
		list = append(list, spec.Name)
	}
	return list
}
