package persistent

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedhelper "k8s.io/component-helpers/scheduling/corev1"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/volume/internal/plugin"
)

const (
	// failedMount and failedMap are the reasons of Events, the kubelet's.
	failedMount = "FailedMount"
	failedMap   = "FailedMapVolume"
	// claimPause is the longest pause between two looks at a claim that can't be used yet. No event says when it is
	// bound, for a node may not watch claims.
	claimPause = 10 * time.Second
	// protection is the finalizer that keeps a claim which is being deleted as long as a pod uses it.
	protection = "kubernetes.io/pvc-protection"
	// groupAnnotation names a group that may use the volume.
	groupAnnotation = "pv.beta.kubernetes.io/gid"
)

var errNoMountOptions = errors.New("mount options are not supported for this volume type")

// checkClaim says why a pod can't use the claim yet, or any more. Its words, as those of all that follows, are the
// kubelet's.
func checkClaim(c *corev1.PersistentVolumeClaim) error {
	switch {
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, protection):
		return errors.New("PVC is being deleted")
	case c.Status.Phase != corev1.ClaimBound:
		return errors.New("PVC is not bound")
	case c.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// checkVolume says why the volume isn't the claim's.
func checkVolume(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	switch {
	case ref == nil:
		return fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
			pv.Name)
	case ref.UID != claim.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name,
			ref.UID, claim.UID)
	case !isName(pv.Name):
		return fmt.Errorf("the name of PV object %q can't be that of a directory", pv.Name)
	}
	return nil
}

func isName(s string) bool {
	return s != "" && s != "." && s != ".." && filepath.Base(s) == s
}

// checkMode reports a container that mounts a device as a directory, or the other way round.
func checkMode(pod *corev1.Pod, name string, pv *corev1.PersistentVolume) error {
	block := plugin.IsBlock(pv)
	for c := range podspec.Containers(&pod.Spec) {
		if err := checkUse(c.VolumeMounts, c.VolumeDevices, name, block); err != nil {
			return err
		}
	}
	return nil
}

func checkUse(mounts []corev1.VolumeMount, devices []corev1.VolumeDevice, name string, block bool) error {
	const wrong = "volume %s has volumeMode %s, but is specified in %s"
	mounted := slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == name })
	device := slices.ContainsFunc(devices, func(d corev1.VolumeDevice) bool { return d.Name == name })
	switch {
	case mounted && block:
		return fmt.Errorf(wrong, name, corev1.PersistentVolumeBlock, "volumeMounts")
	case device && !block:
		return fmt.Errorf(wrong, name, corev1.PersistentVolumeFilesystem, "volumeDevices")
	}
	return nil
}

// checkNode reports a volume that isn't one of this node.
func checkNode(b bound, labels map[string]string) error {
	err := matchesNode(b.volume.Spec.NodeAffinity, labels)
	if err == nil {
		return nil
	}
	failure := b.failed("NodeAffinity check", "NodeAffinity check", err)
	failure.Reason = failedMount
	return failure
}

// matchesNode says why nodes with these labels can't use the volume. component-helpers' own form of it links all API
// groups.
func matchesNode(affinity *corev1.VolumeNodeAffinity, labels map[string]string) error {
	if affinity == nil || affinity.Required == nil {
		return nil
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	matches, err := schedhelper.MatchNodeSelectorTerms(node, affinity.Required)
	if err == nil && !matches {
		return errors.New("no matching NodeSelectorTerms")
	}
	return err
}

// failed is the failure of a step in mounting the volume or in mapping it.
func (b bound) failed(mountStep, mapStep string, err error) *plugin.Failure {
	if b.block {
		return plugin.FailedStep(failedMap, "MapVolume."+mapStep, b.volume.Name, err)
	}
	return plugin.FailedStep(failedMount, "MountVolume."+mountStep, b.volume.Name, err)
}

// isForOnePod reports whether no two pods may use the volume. Where it allows other access modes too nobody knows which
// one the pod wants.
func isForOnePod(pv *corev1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == corev1.ReadWriteOncePod
}

// extraGroup is the group that the volume asks for and the pod doesn't have, or nil.
func extraGroup(pv *corev1.PersistentVolume, pod *corev1.Pod) *int64 {
	gid, err := strconv.ParseInt(pv.Annotations[groupAnnotation], 10, 64)
	if err != nil ||
		(pod.Spec.SecurityContext != nil && slices.Contains(pod.Spec.SecurityContext.SupplementalGroups, gid)) {
		return nil
	}
	return &gid
}

// mountOptions are the volume's mount options and those that the kubelet adds, sorted.
func mountOptions(pv *corev1.PersistentVolume, more ...string) []string {
	options := pv.Spec.MountOptions
	if text, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		options = strings.Split(text, ",")
	}
	all := slices.Concat(options, more)
	all = slices.DeleteFunc(all, func(o string) bool { return o == "" })
	slices.Sort(all)
	return slices.Compact(all)
}

// describe names the source of a volume that can't be mounted.
func describe(b bound) string {
	source := plugin.SourceName(b.volume.Spec.PersistentVolumeSource)
	switch {
	case b.volume.Spec.CSI != nil:
		source = fmt.Sprintf("csi driver %q", b.volume.Spec.CSI.Driver)
	case source == "":
		source = "a persistent volume without a source"
	}
	if b.block {
		source += " with volumeMode Block"
	}
	return source
}
