// Command kubelot-resource gives pods devices, CPUs and memory of their own.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/resource"
)

func main() { daemon.Main(resource.Daemon) }
