package gc

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what gc does on the bus.
var Contract = bus.Contract{
	Daemon: "gc",
	Writes: []bus.Topic{topic.NodePressure, topic.NodeShutdown, topic.GCDecision, topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodSources, topic.PLEGEvent,
		// During a shutdown: whether podsync was started again, and whether the API server knows that the node goes.
		topic.Health, topic.NodeObject,
		// Its own retained state: conditions outlive a restart by their transition period, and a shutdown goes on.
		topic.NodePressure, topic.NodeShutdown,
	},
	Serves: []bus.Topic{topic.GCPlan, topic.ShutdownRequested},
	Calls:  []bus.Topic{topic.PodEvict, topic.StatsSummary, topic.StatusUnwritten},
}

// Daemon is the gc daemon.
var Daemon = daemon.Spec{
	Name: "gc",
	Doc: "Removes dead containers, unused images and old logs, rotates logs, " +
		"and ends pods when the node runs short or shuts down.",
	Contract: Contract,
	Run:      Run,
}
