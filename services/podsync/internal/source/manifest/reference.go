package manifest

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// apiReference names the first kind of API object that the pod needs, or nothing. A static pod must start
// without the API server, and has no identity to read secrets with (feature PreventStaticPodAPIReferences).
func apiReference(pod *corev1.Pod) string {
	switch {
	case pod.Spec.ServiceAccountName != "":
		return "serviceaccounts"
	case len(pod.Spec.ImagePullSecrets) > 0:
		return "secrets"
	case len(pod.Spec.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for c := range podspec.InitAndMain(&pod.Spec) {
		if what := envReference(c); what != "" {
			return what
		}
	}
	for i := range pod.Spec.Volumes {
		if what := volumeReference(&pod.Spec.Volumes[i].VolumeSource); what != "" {
			return what
		}
	}
	return ""
}

func envReference(c *corev1.Container) string {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			return "secrets"
		}
		if from.ConfigMapRef != nil {
			return "configmaps"
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			return "secrets"
		}
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return "configmaps"
		}
	}
	return ""
}

func volumeReference(v *corev1.VolumeSource) string {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)"
	case v.Secret != nil:
		return "secrets (via secret volumes)"
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)"
	case v.Projected != nil:
		return projectedReference(v.Projected)
	}
	if legacySecret(v) {
		return "secrets"
	}
	return ""
}

// legacySecret reports whether one of the old in-tree types names a Secret.
func legacySecret(v *corev1.VolumeSource) bool {
	return v.CephFS != nil && v.CephFS.SecretRef != nil ||
		v.Cinder != nil && v.Cinder.SecretRef != nil ||
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil ||
		v.RBD != nil && v.RBD.SecretRef != nil ||
		v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.ISCSI != nil && v.ISCSI.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil
}

func projectedReference(p *corev1.ProjectedVolumeSource) string {
	for _, s := range p.Sources {
		switch {
		case s.ConfigMap != nil:
			return "configmaps (via projected volumes)"
		case s.Secret != nil:
			return "secrets (via projected volumes)"
		case s.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)"
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case s.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}
