// Command kubelot-status is the status daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/status"
)

func main() { daemon.Main(status.Daemon) }
