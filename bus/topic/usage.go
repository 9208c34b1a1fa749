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
	// NotBefore asks for figures that decide an eviction. Older figures are counted again, even if that takes long and
	// was done a moment ago. A figure that is older nevertheless has a time at least a second before NotBefore, so that
	// it shows although times have whole seconds. Figures without a time are left out.
	NotBefore time.Time `json:"notBefore,omitzero"`
}
