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

// CheckRecording is the program that kubelot replay --check runs: package recheck.
const CheckRecording = "check"

// kubelet is another name of the command line tool, which does the kubelet's work under it.
const kubelet = "kubelet"

// Choose finds the program that the command line asks for: by the name of the executable, or where that
// is kubelot-all, by the first argument ("podsync" or "kubelot-podsync"). It returns the program's name
// ("podsync", "kubelot" for the command line tool, "run" for a group of daemons, "check" for that of a recording) and
// its own command line.
func Choose(args []string) (program string, own []string, err error) {
	if len(args) == 0 {
		args = []string{Self}
	}
	name := filepath.Base(args[0])
	if name == kubelet {
		return CLI, args, nil
	}
	if name == Self {
		if len(args) < 2 {
			return "", nil, fmt.Errorf("%s: name a program: %s", Self, strings.Join(programs(), ", "))
		}
		if args[1] == RunGroup || args[1] == CheckRecording {
			return args[1], args, nil
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
	return append([]string{CLI}, names(Daemons())...)
}
