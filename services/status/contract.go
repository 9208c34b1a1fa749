package status

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// Contract is what the status daemon does on the bus.
var Contract = bus.Contract{
	Daemon: "status",
	Writes: []bus.Topic{topic.MergedStatus, topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodObject, topic.StatusPatch, topic.ProbeResult, topic.PodMirror, topic.PodSources,
		topic.NodeObject, topic.KubeEvent,
		// What it said itself before a restart.
		topic.MergedStatus,
	},
	Serves: []bus.Topic{topic.StatusUnwritten},
}

// Daemon is the status daemon.
var Daemon = daemon.Spec{
	Name:     "status",
	Doc:      "Merges pod status, writes it, mirror pods and Events to the API server, and removes finished pods.",
	Contract: Contract,
	Run:      Run,
}
