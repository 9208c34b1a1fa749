// Command kubelot-bus is the bus daemon.
package main

import (
	"kubelot.dev/bus/embed"
	"kubelot.dev/daemon"
)

func main() { daemon.Main(embed.Daemon) }
