package csi

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/services/volume/internal/attach"
	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/payload"
	"kubelot.dev/services/volume/internal/plugin"
)

// target is a volume as a pod wants it.
type target struct {
	driver, handle string
	// name is the volume's on disk: the persistent volume's, or that in the pod's spec.
	name string
	// dir is the pod's directory of the volume, with the record; point is where the driver publishes it.
	dir, point string
	persistent bool
	// block is true where pods get the volume as a device, which is then at device.
	block      bool
	device     device.Map
	pod        *corev1.Pod
	readOnly   bool
	fsType     string
	attributes map[string]string
	// modes are the access modes, options the mount options.
	modes   []corev1.PersistentVolumeAccessMode
	options []string
	// label is the SELinux label that the volume is mounted with; empty for none.
	label string
	// stageSecret and publishSecret name what the driver gets of each.
	stageSecret, publishSecret *corev1.SecretReference
	// publishContext is what the attacher has said of the volume.
	publishContext map[string]string
	object         *storagev1.CSIDriver
}

func hexSum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// inline is the volume of the pod's own spec.
func inline(r plugin.Request) target {
	source := r.Volume.CSI
	t := target{
		driver: source.Driver, handle: "csi-" + hexSum(string(r.Pod.UID)+r.Volume.Name), name: r.Volume.Name,
		dir: r.Dir, point: filepath.Join(r.Dir, mountName), pod: r.Pod,
		readOnly: source.ReadOnly != nil && *source.ReadOnly, attributes: source.VolumeAttributes,
		modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}
	if source.FSType != nil {
		t.fsType = *source.FSType
	}
	if source.NodePublishSecretRef != nil {
		t.publishSecret = &corev1.SecretReference{Namespace: r.Pod.Namespace, Name: source.NodePublishSecretRef.Name}
	}
	return t
}

// persistent is the persistent volume for the pod; at says where it is.
func persistent(pod *corev1.Pod, pv *corev1.PersistentVolume, readOnly bool) target {
	source := pv.Spec.CSI
	return target{
		driver: source.Driver, handle: source.VolumeHandle, name: pv.Name, pod: pod, persistent: true,
		block:    plugin.IsBlock(pv),
		readOnly: readOnly, fsType: source.FSType, attributes: source.VolumeAttributes, modes: pv.Spec.AccessModes,
		options: pv.Spec.MountOptions, stageSecret: source.NodeStageSecretRef, publishSecret: source.NodePublishSecretRef,
	}
}

// key names the volume itself: one volume has one worker at a time.
func (t target) key() string { return t.driver + "^" + t.handle }

func (t target) mode() storagev1.VolumeLifecycleMode {
	if t.persistent {
		return storagev1.VolumeLifecyclePersistent
	}
	return storagev1.VolumeLifecycleEphemeral
}

// checkMode reports a driver that doesn't serve volumes of this mode, in the kubelet's words.
func (t target) checkMode() error {
	if t.object == nil && t.persistent {
		return nil
	}
	if t.object == nil {
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", t.mode(), t.driver)
	}
	modes := t.object.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	for _, m := range modes {
		if m == t.mode() {
			return nil
		}
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", t.mode(), t.driver, modes)
}

// podInfo is what a driver is told of the pod, if its CSIDriver object asks for it.
func (t target) podInfo() map[string]string {
	if t.object == nil || t.object.Spec.PodInfoOnMount == nil || !*t.object.Spec.PodInfoOnMount {
		return nil
	}
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            t.pod.Name,
		"csi.storage.k8s.io/pod.namespace":       t.pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(t.pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": t.pod.Spec.ServiceAccountName,
		"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(!t.persistent),
	}
}

// capability is what the pod does with the volume, in CSI's terms.
func (t target) capability(can *driver.Capabilities) *csiapi.VolumeCapability {
	mode := &csiapi.VolumeCapability_AccessMode{Mode: driver.AccessMode(t.modes, can.SingleNodeMultiWriter)}
	if t.block {
		block := &csiapi.VolumeCapability_Block{Block: &csiapi.VolumeCapability_BlockVolume{}}
		return &csiapi.VolumeCapability{AccessMode: mode, AccessType: block}
	}
	mount := &csiapi.VolumeCapability_MountVolume{FsType: t.fsType, MountFlags: t.mountFlags()}
	if gid := payload.FSGroup(t.pod); gid != nil && can.MountGroup {
		mount.VolumeMountGroup = strconv.FormatInt(*gid, 10)
	}
	return &csiapi.VolumeCapability{AccessMode: mode, AccessType: &csiapi.VolumeCapability_Mount{Mount: mount}}
}

// setsGroup reports whether the volume's files are to be given to the pod's fsGroup here, and not by the driver.
func (t target) setsGroup(can *driver.Capabilities) bool {
	if payload.FSGroup(t.pod) == nil || t.readOnly || can.MountGroup {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if t.object != nil && t.object.Spec.FSGroupPolicy != nil {
		policy = *t.object.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	for _, mode := range t.modes {
		if mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod {
			return t.fsType != ""
		}
	}
	return false
}

// tokensAreSecret reports whether the driver wants tokens among the secrets, not in the volume's context.
func (t target) tokensAreSecret() bool {
	return t.object != nil && t.object.Spec.ServiceAccountTokenInSecrets != nil &&
		*t.object.Spec.ServiceAccountTokenInSecrets
}

// republishes reports whether the driver wants to be told of the pod again and again. The kubelet does it for
// filesystems only.
func (t target) republishes() bool {
	return !t.block && t.object != nil && t.object.Spec.RequiresRepublish != nil && *t.object.Spec.RequiresRepublish
}

// record is what the pod's vol_data.json says of the volume.
func (t target) record(node string) record {
	return t.labeled(record{
		keySpecName: t.name, keyHandle: t.handle, keyDriver: t.driver, keyNode: node, keyMode: string(t.mode()),
		keyAttachment: attach.ID{Driver: t.driver, Handle: t.handle}.AttachmentOn(node),
	})
}

// common is what the volume's own vol_data.json says.
func (t target) common(node string) record {
	if t.block {
		r := t.record(node)
		delete(r, keyMode)
		return r
	}
	return t.labeled(record{keyDriver: t.driver, keyHandle: t.handle})
}

// merged joins maps into one of their own.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
