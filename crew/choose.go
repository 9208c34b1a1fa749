package crew

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Self is the name of the multi-call executable.
const Self = "kubelot-all"

// CLI is the name of the command line tool, as an executable and among the programs.
const CLI = "kubelot"

// Choose finds the program that the command line asks for: by the name of the executable, or where that
// is kubelot-all, by the first argument ("podsync" or "kubelot-podsync"). It returns the program's name
// ("podsync", or "kubelot" for the command line tool) and its own command line.
func Choose(args []string) (program string, own []string, err error) {
	if len(args) == 0 {
		args = []string{Self}
	}
	name := filepath.Base(args[0])
	if name == Self {
		if len(args) < 2 {
			return "", nil, fmt.Errorf("%s: name a program: %s", Self, strings.Join(programs(), ", "))
		}
		args, name = args[1:], args[1]
	}
	program = strings.TrimPrefix(name, CLI+"-")
	if !slices.Contains(programs(), program) {
		return "", nil, fmt.Errorf("%s: there is no program %q, only: %s", Self, name, strings.Join(programs(), ", "))
	}
	return program, args, nil
}

func programs() []string {
	names := []string{CLI}
	for _, spec := range Daemons() {
		names = append(names, spec.Name)
	}
	return names
}
