package probe

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what probe does on the bus.
var Contract = bus.Contract{
	Daemon: "probe",
	Writes: []bus.Topic{topic.ProbeResult, topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PLEGEvent, topic.NodeObject,
		// Its own retained state, to go on after a restart.
		topic.ProbeResult,
	},
}

// Daemon is the probe daemon.
var Daemon = daemon.Spec{
	Name:     "probe",
	Doc:      "Runs the liveness, readiness and startup probes of containers and states their verdicts.",
	Contract: Contract,
	Run:      Run,
}
