package cli

import (
	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// Contract is what the command line does on the bus: it reads everything, asks gc what it would do, and has it end the
// pods of a node that shuts down. It asks podsync what it makes of manifests, and has it end back-offs. It asks the
// resource daemon which claims of devices there are, and has it give up on drivers that are gone.
var Contract = bus.Contract{
	Daemon: "cli",
	Reads: []bus.Topic{
		topic.PodUpdate, topic.PodObject, topic.PodMirror, topic.PodSources, topic.PodStep,
		topic.PLEGEvent, topic.VolumeState, topic.PodAllocation, topic.PluginRegistered, topic.CSIDriver,
		topic.CSIVolumes,
		topic.ProbeResult, topic.StatusPatch, topic.MergedStatus, topic.GCDecision, topic.KubeEvent,
		topic.NodeMachine, topic.NodeRuntime,
		topic.NodeObject, topic.ResourcesOfNode, topic.NodePressure, topic.NodeShutdown, topic.Health,
	},
	Calls: []bus.Topic{
		topic.GCPlan, topic.ShutdownRequested, topic.PodRetry, topic.ManifestCheck, topic.ResourceClaims,
		topic.ResourceForget,
	},
}
