package gc

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what gc does on the bus.
var Contract = bus.Contract{
	Daemon: "gc",
	Writes: []bus.Topic{topic.NodePressure, topic.GCDecision, topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodSources, topic.PLEGEvent,
		// Its own retained state: conditions outlive a restart by their transition period.
		topic.NodePressure,
	},
	Serves: []bus.Topic{topic.GCPlan},
	Calls:  []bus.Topic{topic.PodEvict, topic.StatsSummary},
}

// Daemon is the gc daemon.
var Daemon = daemon.Spec{
	Name:     "gc",
	Doc:      "Removes dead containers, unused images and old logs, rotates logs, and evicts pods when the node runs short.",
	Contract: Contract,
	Run:      Run,
}
