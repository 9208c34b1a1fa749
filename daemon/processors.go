package daemon

import (
	"os"
	"runtime"
)

// defaultProcessors is how many processors a daemon uses at most, unless it says otherwise. Each one that Go uses
// keeps caches of its own: 16 instead of 2 cost an idle daemon 1 MiB.
const defaultProcessors = 2

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
