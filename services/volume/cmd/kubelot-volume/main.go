// Command kubelot-volume mounts the volumes of pods and keeps their files up to date.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/volume"
)

func main() { daemon.Main(volume.Daemon) }
