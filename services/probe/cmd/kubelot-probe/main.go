// Command kubelot-probe is the probe daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/probe"
)

func main() { daemon.Main(probe.Daemon) }
