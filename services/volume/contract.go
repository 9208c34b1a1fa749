package volume

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what the volume daemon does on the bus. It reads the runtime's state only after its start, to
// remove nothing below a running container.
var Contract = bus.Contract{
	Daemon: "volume",
	Writes: []bus.Topic{topic.VolumeState, topic.PluginRegistered, topic.CSIDriver, topic.CSIVolumes},
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodSources, topic.NodeObject, topic.PLEGEvent, topic.NodeRuntime,
		topic.PluginRegistered, topic.CSIDriver,
	},
	Serves: []bus.Topic{topic.VolumeSubPath, topic.VolumeUsage},
	Calls:  []bus.Topic{topic.PodEvict},
}
