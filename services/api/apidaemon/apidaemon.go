// Package apidaemon is the api daemon for an executable that runs it with others. Package api is apart from it, since
// what the daemon links is more than others may pay for (docs/adr/0007).
package apidaemon

import (
	"kubelot.dev/daemon"
	"kubelot.dev/services/api/internal/server"
)

// Daemon is kubelot-api.
func Daemon() daemon.Spec { return server.Daemon }
