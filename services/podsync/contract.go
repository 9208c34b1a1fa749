package podsync

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what podsync does on the bus.
var Contract = bus.Contract{
	Daemon: "podsync",
	Writes: []bus.Topic{
		topic.PodUpdate, topic.PodObject, topic.PodMirror, topic.PodSources, topic.PodStep, topic.StatusPatch,
		topic.Health, topic.KubeEvent,
	},
	Reads: []bus.Topic{
		topic.PLEGEvent, topic.VolumeState, topic.ProbeResult, topic.NodeObject, topic.NodeMachine, topic.NodeRuntime,
		topic.NodePressure, topic.NodeShutdown, topic.PodAllocation, topic.ResourcesOfNode,
		// Its own retained state, to go on after a restart.
		topic.PodUpdate, topic.PodMirror, topic.StatusPatch,
	},
	Serves: []bus.Topic{topic.PodEvict, topic.PodRetry, topic.ManifestCheck},
	Calls:  []bus.Topic{topic.VolumeSubPath, topic.ResourcePreStart},
}
