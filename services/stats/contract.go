package stats

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what the stats daemon does on the bus.
var Contract = bus.Contract{
	Daemon: "stats",
	Writes: []bus.Topic{topic.NodeMachine, topic.Health, topic.KubeEvent},
	Reads:  []bus.Topic{topic.PodUpdate, topic.PLEGEvent, topic.VolumeState},
	Serves: []bus.Topic{topic.StatsSummary},
	Calls:  []bus.Topic{topic.VolumeUsage},
}

// Daemon is the stats daemon.
var Daemon = daemon.Spec{
	Name:     "stats",
	Doc:      "Reports what the machine is, and what the node, its pods, containers, volumes and filesystems use of it.",
	Contract: Contract,
	Run:      Run,
	// Much of its work is waiting.
	Processors: 1,
}
