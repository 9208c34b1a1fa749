package api

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what api does on the bus.
var Contract = bus.Contract{
	Daemon: "api",
	Writes: []bus.Topic{topic.Health, topic.KubeEvent},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodSources, topic.PodMirror, topic.MergedStatus, topic.StatusPatch,
		topic.PodStep, topic.PLEGEvent, topic.NodeObject,
		topic.Health, topic.ResourcesOfNode,
	},
	Calls: []bus.Topic{topic.StatsSummary},
}
