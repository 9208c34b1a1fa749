package lease

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reassertedLabels are the well-known labels that a node agent sets again whenever it registers.
var reassertedLabels = map[string]bool{
	corev1.LabelHostname:                true,
	corev1.LabelTopologyZone:            true,
	corev1.LabelTopologyRegion:          true,
	corev1.LabelFailureDomainBetaZone:   true,
	corev1.LabelFailureDomainBetaRegion: true,
	corev1.LabelInstanceTypeStable:      true,
	corev1.LabelInstanceType:            true,
	corev1.LabelOSStable:                true,
	corev1.LabelArchStable:              true,
	labelOSBeta:                         true,
	labelArchBeta:                       true,
}

// mayLabel reports whether a node may set a label of that key on its own Node: of Kubernetes' own namespaces only those
// that are for node agents. Source: the admission plug-in NodeRestriction.
func mayLabel(key string) bool {
	namespace, _, qualified := strings.Cut(key, "/")
	if !qualified || reassertedLabels[key] {
		return true
	}
	for _, of := range []string{corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode} {
		if within(namespace, of) {
			return true
		}
	}
	return !within(namespace, "kubernetes.io") && !within(namespace, "k8s.io")
}

// within reports whether the domain is that one, or below it.
func within(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
