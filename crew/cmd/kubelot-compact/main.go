// Command kubelot-compact is every daemon in one executable, for the layout that runs them in one process
// (docs/adr/0016): kubelot-compact run bus,podsync,... with the flags of the daemons.
package main

import (
	"fmt"
	"os"

	"kubelot.dev/crew"
	"kubelot.dev/services/api/apidaemon"
)

func main() {
	err := crew.MainGroup(crew.Compact, append(crew.Daemons(), apidaemon.Daemon()))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
