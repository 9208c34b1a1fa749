package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// defaultProcessors is how many processors a daemon uses at most, unless it says otherwise. Each one that Go uses
// keeps caches of its own: 16 instead of 2 cost an idle daemon 1 MiB.
const defaultProcessors = 2

// MainOf is Main for an executable with several daemons: its name, such as kubelot-pleg, chooses.
func MainOf(specs ...Spec) {
	name := strings.TrimPrefix(filepath.Base(os.Args[0]), "kubelot-")
	var names []string
	for _, spec := range specs {
		if spec.Name == name {
			Main(spec)
		}
		names = append(names, spec.Name)
	}
	fmt.Fprintf(os.Stderr, "there is no daemon %q in this executable, only: %s\n", name, strings.Join(names, ", "))
	os.Exit(2)
}

// limitProcessors has Go use no more processors than the daemon needs. GOMAXPROCS in the unit's environment wins.
func limitProcessors(spec Spec) {
	most := spec.Processors
	if most == 0 {
		most = defaultProcessors
	}
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > most {
		runtime.GOMAXPROCS(most)
	}
}
