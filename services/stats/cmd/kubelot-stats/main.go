// Command kubelot-stats is the stats daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/stats"
)

func main() { daemon.Main(stats.Daemon) }
