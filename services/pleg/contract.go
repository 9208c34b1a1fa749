package pleg

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what the pleg daemon does on the bus.
var Contract = bus.Contract{
	Daemon: "pleg",
	Writes: []bus.Topic{topic.PLEGEvent, topic.NodeRuntime, topic.Health, topic.KubeEvent},
	Reads:  []bus.Topic{topic.PLEGEvent},
}

// Daemon is the pleg daemon.
var Daemon = daemon.Spec{
	Name:     "pleg",
	Doc:      "Reports what really runs: every pod as the container runtime has it, and the runtime's health.",
	Contract: Contract,
	Run:      Run,
}
