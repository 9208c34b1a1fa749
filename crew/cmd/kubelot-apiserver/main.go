// Command kubelot-apiserver is the daemons that talk to the API server and not to the container runtime, in one executable
// (docs/adr/0015). The name by which it is called chooses the daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/lease"
	"kubelot.dev/services/status"
	"kubelot.dev/services/volume"
)

func main() { daemon.MainOf(volume.Daemon, status.Daemon, lease.Daemon) }
