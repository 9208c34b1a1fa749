// Package features says which features of a node a pod needs that this node doesn't declare (KEP-5328). It is pure: no
// I/O, no clock. Which pod needs what is Kubernetes' own code, which the scheduler and the API server ask too.
package features

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"kubelot.dev/kube"
)

// The kubelet's reasons: of a pod that is refused, and of the Event of a pod that runs.
const (
	ReasonRefused = "PodFeatureUnsupported"
	ReasonChanged = "FailedNodeDeclaredFeaturesCheck"
)

// release is the one whose behaviour this node has.
var release = version.MustParseSemantic(kube.KubernetesVersion)

// Missing says, in the kubelet's words, which features the pod needs that the node doesn't declare. It is empty for
// none.
func Missing(pod *corev1.Pod) string { return missing(pod, kube.DeclaredFeatures()) }

// MissingFor is Missing for the change of a pod.
func MissingFor(before, now *corev1.Pod) string {
	return missingFor(before, now, kube.DeclaredFeatures())
}

func missing(pod *corev1.Pod, declared []string) string {
	return sentence(declared, func(f types.Feature) bool { return f.InferForScheduling(info(pod)) })
}

func missingFor(before, now *corev1.Pod, declared []string) string {
	// The library compares init containers by their places. Those of a static pod may become fewer.
	if len(before.Spec.InitContainers) != len(now.Spec.InitContainers) {
		return ""
	}
	return sentence(declared, func(f types.Feature) bool { return f.InferForUpdate(info(before), info(now)) })
}

func info(pod *corev1.Pod) *types.PodInfo {
	return &types.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

// sentence names the features that are needed and not declared.
func sentence(declared []string, needed func(types.Feature) bool) string {
	var names []string
	for _, f := range features.AllFeatures {
		// After its last version every node has a feature, and none declares it.
		if last := f.MaxVersion(); last != nil && release.GreaterThan(last) {
			continue
		}
		if needed(f) && !slices.Contains(declared, f.Name()) {
			names = append(names, f.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "Pod requires node features that are not available: " + strings.Join(names, ", ")
}
