// Command kubelot-gc is the daemon that reclaims what pods leave and evicts pods under pressure.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/gc"
)

func main() { daemon.Main(gc.Daemon) }
