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

// allowedLabels leaves out the labels that a node may not give itself; the NodeRestriction admission plugin
// would refuse the whole Node for one of them.
func allowedLabels(labels map[string]string) map[string]string {
	allowed := map[string]string{}
	for name, value := range labels {
		if labelAllowed(name) {
			allowed[name] = value
		}
	}
	return allowed
}

// labelAllowed follows the rules of NodeRestriction: in the namespaces of Kubernetes only well-known labels and
// those for node agents.
func labelAllowed(name string) bool {
	namespace, _, found := strings.Cut(name, "/")
	if !found || !inDomain(namespace, "kubernetes.io") && !inDomain(namespace, "k8s.io") {
		return true
	}
	return reassertedLabels[name] || inDomain(namespace, "kubelet.kubernetes.io") || inDomain(namespace, "node.kubernetes.io")
}

func inDomain(namespace, domain string) bool {
	return namespace == domain || strings.HasSuffix(namespace, "."+domain)
}

// refusedLabels are the given labels that are left out, for a warning.
func refusedLabels(labels map[string]string) []string {
	var refused []string
	for name := range labels {
		if !labelAllowed(name) {
			refused = append(refused, name)
		}
	}
	return refused
}
