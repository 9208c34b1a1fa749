// Package crew is the list of all daemons: the one place that knows every service. From their contracts
// come docs/dataflow.md, the bus's permissions and the proof that each fact has one owner; from their
// specs come the multi-call executable and the one of the compact layout.
package crew

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/embed"
	"kubelot.dev/daemon"
	"kubelot.dev/services/api"
	"kubelot.dev/services/gc"
	"kubelot.dev/services/lease"
	"kubelot.dev/services/pleg"
	"kubelot.dev/services/podsync"
	"kubelot.dev/services/probe"
	"kubelot.dev/services/resource"
	"kubelot.dev/services/stats"
	"kubelot.dev/services/status"
	"kubelot.dev/services/volume"
)

// Contracts are the contracts of all services, in the order of a pod's way.
func Contracts() []bus.Contract {
	return []bus.Contract{
		podsync.Contract,
		pleg.Contract,
		volume.Contract,
		resource.Contract,
		probe.Contract,
		status.Contract,
		lease.Contract,
		gc.Contract,
		stats.Contract,
		api.Contract,
	}
}

// Daemons are the daemons of the multi-call executable, in the order of their start.
func Daemons() []daemon.Spec {
	return []daemon.Spec{
		embed.Daemon,
		stats.Daemon,
		pleg.Daemon,
		volume.Daemon,
		resource.Daemon,
		probe.Daemon,
		status.Daemon,
		lease.Daemon,
		gc.Daemon,
		podsync.Daemon,
	}
}
