// Command kubelot-doze waits in the place of a daemon that nothing needs (docs/adr/0034). Daemons start it, and nobody
// else does.
package main

import (
	"os"

	"kubelot.dev/daemon/doze"
)

func main() { os.Exit(doze.Main()) }
