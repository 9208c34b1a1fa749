// Command kubelot-lease is the lease daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/lease"
)

func main() { daemon.Main(lease.Daemon) }
