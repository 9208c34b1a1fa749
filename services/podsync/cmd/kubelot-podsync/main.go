// Command kubelot-podsync runs the pods of this node.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/podsync"
)

func main() { daemon.Main(podsync.Daemon) }
