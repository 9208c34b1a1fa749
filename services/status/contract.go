package status

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what the status daemon does on the bus.
var Contract = bus.Contract{
	Daemon: "status",
	Writes: []bus.Topic{topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodObject, topic.StatusPatch, topic.ProbeResult, topic.PodMirror, topic.PodSources,
		topic.NodeObject, topic.KubeEvent,
	},
}

// Daemon is the status daemon.
var Daemon = daemon.Spec{
	Name:     "status",
	Doc:      "Writes pod status, mirror pods and Events to the API server and removes finished pods.",
	Contract: Contract,
	Run:      Run,
}
