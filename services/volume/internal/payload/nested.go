package payload

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// Nested are the directories inside the volume at which a container mounts other volumes. They must exist
// beforehand, since the volume itself is read-only to the runtime. Of nested ones only the outermost is named.
func Nested(volume string, pod *corev1.Pod) []string {
	var dirs []string
	for c := range podspec.InitAndMain(&pod.Spec) {
		dirs = append(dirs, nestedIn(volume, c.VolumeMounts)...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func nestedIn(volume string, mounts []corev1.VolumeMount) []string {
	var dirs []string
	for _, outer := range mounts {
		// Mount points below a subPath belong to that subPath, not to the volume's root.
		if outer.Name != volume || outer.SubPath != "" || outer.SubPathExpr != "" {
			continue
		}
		var inside []string
		for _, inner := range mounts {
			if rel, ok := strings.CutPrefix(path.Clean(inner.MountPath), strings.TrimSuffix(path.Clean(outer.MountPath), "/")+
				"/"); ok && rel != "" {
				inside = append(inside, rel)
			}
		}
		dirs = append(dirs, outermost(inside)...)
	}
	return dirs
}

// outermost leaves out what is below another one.
func outermost(dirs []string) []string {
	var out []string
	for _, dir := range dirs {
		covered := slices.ContainsFunc(dirs, func(other string) bool { return strings.HasPrefix(dir, other+"/") })
		if !covered {
			out = append(out, dir)
		}
	}
	return out
}
