package manifest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// defaultVolume fills in the defaults of each volume type that has some. The in-tree types that no
// kubelet mounts any more have theirs too, since the UID depends on them.
func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Image != nil && v.Image.PullPolicy == "" {
		v.Image.PullPolicy = pullPolicy(v.Image.Reference)
	}
	if v.HostPath != nil {
		setNil(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		setNil(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		setNil(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		setNil(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		setNil(&claim.VolumeMode, corev1.PersistentVolumeFilesystem)
		roundUp(claim.Resources.Limits)
		roundUp(claim.Resources.Requests)
	}
	defaultLegacy(v)
}

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			setEmpty(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	setNil(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if s := &p.Sources[i]; s.DownwardAPI != nil {
			defaultDownward(s.DownwardAPI.Items)
		}
		if s := &p.Sources[i]; s.ServiceAccountToken != nil {
			setNil(&s.ServiceAccountToken.ExpirationSeconds, int64(time.Hour/time.Second))
		}
	}
}

func defaultLegacy(v *corev1.Volume) {
	if v.ISCSI != nil {
		setEmpty(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		setEmpty(&v.RBD.RBDPool, "rbd")
		setEmpty(&v.RBD.RadosUser, "admin")
		setEmpty(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		setNil(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setNil(&v.AzureDisk.FSType, "ext4")
		setNil(&v.AzureDisk.ReadOnly, false)
		setNil(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
	}
	if v.ScaleIO != nil {
		setEmpty(&v.ScaleIO.StorageMode, "ThinProvisioned")
		setEmpty(&v.ScaleIO.FSType, "xfs")
	}
}
