package persistent

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"kubelot.dev/services/volume/internal/plugin"
)

// migration knows which volumes of clouds are a CSI driver's by now (KEP-625): their kinds have no code of their own
// any more, and their objects stay as they are.
var migration = csitranslation.New()

// isMigrated reports whether the pod itself names such a volume.
func isMigrated(v *corev1.Volume) bool { return migration.IsInlineMigratable(v) }

// translated is the persistent volume as its CSI driver's; one of any other kind stays as it is.
func translated(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if !migration.IsPVMigratable(pv) {
		return pv, nil
	}
	csi, err := migration.TranslateInTreePVToCSI(klog.Background(), pv)
	if err != nil {
		return nil, fmt.Errorf("failed to translate in-tree pv to CSI: %w", err)
	}
	return csi, nil
}

// inline is the volume of a pod that names it itself, as a persistent volume of its CSI driver. Its name becomes that
// of a directory, as with the kubelet: of disks of Azure and vSphere it is made from a path.
func inline(r plugin.Request) (bound, error) {
	volume, policy := r.Volume, ""
	if volume.VsphereVolume != nil {
		// The library looks for the policy in a place where an inline volume has none, and panics.
		volume = volume.DeepCopy()
		policy, volume.VsphereVolume.StoragePolicyName = volume.VsphereVolume.StoragePolicyName, ""
	}
	pv, err := migration.TranslateInTreeInlineVolumeToCSI(klog.Background(), volume, r.Pod.Namespace)
	if err != nil {
		return bound{}, fmt.Errorf("failed to translate inline volume to CSI: %w", err)
	}
	if policy != "" {
		pv.Spec.CSI.VolumeAttributes["storagepolicyname"] = policy
	}
	pv.Name = strings.ReplaceAll(pv.Name, "/", "~")
	if !isName(pv.Name) {
		return bound{}, fmt.Errorf("the name %q, which the volume's is translated to, can't be that of a directory", pv.Name)
	}
	return bound{volume: pv, migrated: true}, nil
}
