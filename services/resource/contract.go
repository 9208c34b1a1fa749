package resource

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what the resource daemon does on the bus.
var Contract = bus.Contract{
	Daemon: "resource",
	Writes: []bus.Topic{topic.PodAllocation, topic.ResourcesOfNode, topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodSources, topic.PluginRegistered,
		// For the Pods API, where it is on.
		topic.MergedStatus,
		// Its own retained state: what an earlier run has said and nobody has any more is taken back.
		topic.PodAllocation, topic.ResourcesOfNode,
		// Devices that the Node still has of an earlier agent.
		topic.NodeObject,
	},
	Serves: []bus.Topic{topic.ResourcePreStart, topic.ResourceClaims, topic.ResourceForget},
}

// Daemon is the resource daemon.
var Daemon = daemon.Spec{
	Name:     "resource",
	Doc:      "Gives pods devices, CPUs and memory of their own.",
	Contract: Contract,
	Run:      run,
	// Much of its work is waiting.
	Processors: 1,
}
