package gc

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what gc does on the bus.
var Contract = bus.Contract{
	Daemon: "gc",
	Writes: []bus.Topic{topic.NodePressure, topic.GCDecision, topic.Health, topic.KubeEvent},
	Reads:  []bus.Topic{topic.PodUpdate, topic.PodSources, topic.PLEGEvent, topic.NodeMachine, topic.NodeObject, topic.NodePressure},
	Serves: []bus.Topic{topic.GCPlan},
	Calls:  []bus.Topic{topic.PodEvict, topic.StatsSummary},
}
