package cli

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what the command line does on the bus: it reads everything and asks gc what it would do.
var Contract = bus.Contract{
	Daemon: "cli",
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodObject, topic.PodMirror, topic.PodSources, topic.PodStep, topic.PLEGEvent, topic.VolumeState,
		topic.ProbeResult, topic.StatusPatch, topic.GCDecision, topic.KubeEvent, topic.NodeMachine, topic.NodeRuntime,
		topic.NodeObject, topic.NodePressure, topic.Health,
	},
	Calls: []bus.Topic{topic.GCPlan},
}
