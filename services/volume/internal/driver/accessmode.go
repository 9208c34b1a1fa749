package driver

import (
	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// AccessMode is CSI's name of the first access mode; drivers of CSI 1.5 and later distinguish more of them.
func AccessMode(modes []corev1.PersistentVolumeAccessMode, fine bool) csiapi.VolumeCapability_AccessMode_Mode {
	mode := corev1.ReadWriteOnce
	if len(modes) > 0 {
		mode = modes[0]
	}
	switch {
	case mode == corev1.ReadOnlyMany:
		return csiapi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOncePod && fine:
		return csiapi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == corev1.ReadWriteOnce && fine:
		return csiapi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOnce, mode == corev1.ReadWriteOncePod:
		return csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csiapi.VolumeCapability_AccessMode_UNKNOWN
}
