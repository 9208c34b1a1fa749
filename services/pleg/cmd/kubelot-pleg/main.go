// Command kubelot-pleg is the pleg daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/pleg"
)

func main() { daemon.Main(pleg.Daemon) }
