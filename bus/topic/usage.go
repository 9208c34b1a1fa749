package topic

import "time"

// SummaryRequest is the request of stats.summary. The reply is the kubelet's own
// (k8s.io/kubelet/pkg/apis/stats/v1alpha1.Summary).
type SummaryRequest struct {
	// OnlyCPUAndMemory leaves out filesystems, volumes and networks, which cost more to read.
	OnlyCPUAndMemory bool `json:"onlyCPUAndMemory,omitempty"`
	// Processes adds the number of each pod's processes to what OnlyCPUAndMemory leaves.
	Processes bool `json:"processes,omitempty"`
	// Pods are the UIDs of the pods that are asked for; empty means all.
	Pods []string `json:"pods,omitempty"`
	// MaxAge is how old the figures may be; zero means that stats decides.
	MaxAge time.Duration `json:"maxAgeNanoseconds,omitempty"`
	// NotBefore asks for figures by which somebody is evicted: what is older is counted again even where that takes
	// long and was done a moment ago. What a pod uses by older figures all the same is told with a time at least a
	// second before, so that it shows though times have whole seconds; what has no time is left out.
	NotBefore time.Time `json:"notBefore,omitzero"`
}
