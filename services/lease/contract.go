package lease

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what the lease daemon does on the bus.
var Contract = bus.Contract{
	Daemon: "lease",
	Writes: []bus.Topic{topic.NodeObject, topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.NodeMachine, topic.NodeRuntime, topic.NodePressure, topic.NodeShutdown, topic.NodeObject, topic.Health,
		topic.CSIDriver, topic.CSIVolumes, topic.ResourcesOfNode, topic.PluginRegistered,
	},
}

// Daemon is the lease daemon.
var Daemon = daemon.Spec{
	Name:     "lease",
	Doc:      "Registers the Node, renews its lease and reports its status and conditions.",
	Contract: Contract,
	Run:      Run,
	// Much of its work is waiting.
	Processors: 1,
}
