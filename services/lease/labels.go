package lease

import corev1 "k8s.io/api/core/v1"

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
