// Command kubelot-runtime is the daemons that talk to the container runtime and not to the API server, in one executable
// (docs/adr/0015). The name by which it is called chooses the daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/gc"
	"kubelot.dev/services/pleg"
	"kubelot.dev/services/probe"
	"kubelot.dev/services/stats"
)

func main() { daemon.MainOf(stats.Daemon, pleg.Daemon, probe.Daemon, gc.Daemon) }
