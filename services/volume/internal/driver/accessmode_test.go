package driver

import (
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

func TestAccessMode(t *testing.T) {
	type modes []corev1.PersistentVolumeAccessMode
	for _, c := range []struct {
		modes        modes
		coarse, fine csiapi.VolumeCapability_AccessMode_Mode
	}{
		{
			nil, csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csiapi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
		},
		{
			modes{corev1.ReadWriteOnce},
			csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csiapi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
		},
		{
			modes{corev1.ReadWriteOncePod},
			csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csiapi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		},
		{
			modes{corev1.ReadOnlyMany},
			csiapi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
			csiapi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		},
		{
			modes{corev1.ReadWriteMany},
			csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
			csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
		},
		{
			modes{corev1.ReadWriteMany, corev1.ReadWriteOnce},
			csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
			csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
		},
		{modes{"New"}, csiapi.VolumeCapability_AccessMode_UNKNOWN, csiapi.VolumeCapability_AccessMode_UNKNOWN},
	} {
		if coarse, fine := AccessMode(c.modes, false), AccessMode(c.modes, true); coarse != c.coarse || fine != c.fine {
			t.Errorf("%v: %s, %s; want %s, %s", c.modes, coarse, fine, c.coarse, c.fine)
		}
	}
}
