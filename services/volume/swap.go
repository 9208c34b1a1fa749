package volume

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/swap"
)

// The kubelet's Event for a node that may swap what tmpfs volumes hold.
const (
	reasonSwappable  = "PossibleMemoryBackedVolumesOnDisk"
	messageSwappable = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) " +
		"might be swapped to disk and should no longer be considered secure."
)

// warnOfSwap records an Event on the Node where the machine swaps, as file says, and volumes in memory can't be kept
// out of that. A node with failSwapOn runs no pods then.
func warnOfSwap(env daemon.Env, file string, noswap func() error) {
	k := &env.Config.Kubelet
	swaps, err := swap.On(file)
	if err != nil || !swaps || k.FailSwapOn != nil && *k.FailSwapOn {
		return
	}
	why := noswap()
	if why == nil {
		return
	}
	env.Log.Warn("secrets and other volumes in memory may be written to swap: use Linux 6.4 or later, or switch swap off",
		"error", why)
	node := env.Config.NodeName
	env.Events.Record(topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: node, UID: node}, Type: corev1.EventTypeWarning, Reason: reasonSwappable,
		Message: messageSwappable,
	})
}
