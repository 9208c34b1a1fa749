package probe

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what probe does on the bus.
var Contract = bus.Contract{
	Daemon: "probe",
	Writes: []bus.Topic{topic.ProbeResult, topic.Health, topic.KubeEvent},
	Reads:  []bus.Topic{topic.PodUpdate, topic.PLEGEvent, topic.ProbeResult},
}
