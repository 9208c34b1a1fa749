// Command kubelot-api is the api daemon.
package main

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/api/internal/server"
)

func main() { daemon.Main(server.Daemon) }
